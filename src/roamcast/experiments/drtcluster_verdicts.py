"""What came of the paper's claims, in words, by the figures themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from roamcast.experiments.statistics import mean_of, paired

__all__ = ["verdicts"]

_OURS = "curve"
_VARIANTS = ("Sim-NonFre", "Sim-Fre", "Sim-Fre-Co")


def verdicts(figures: Mapping[str, Any], spreads: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str]:
    """A sentence or two for each figure (`figures` has means), and for the partitioner of our own: `spreads` has what
    each partitioner came to with each seed."""
    return {
        "figure4": _figure4(figures["figure4"], figures["sweep"]),
        "figure5": _figure5(figures["figure5"]),
        "figure6": _figure6(figures["figure6"]),
        "figure7": _figure7(figures["figure7"]),
        "ours": _ours(spreads["partitioners"]),
        "ours while interests drift": _ours(spreads["drift"]),
    }


def _figure4(variants: Mapping[str, Mapping[str, float]], sweep: Sequence[Mapping[str, float]]) -> str:
    told = []
    for reading, suffix in (("cell and rarest term", ""), ("rectangle and any term", "_weak")):
        after = [variants[name][f"after{suffix}"] for name in _VARIANTS]
        order = "the paper's order" if _falls(after) else "not the paper's order"
        more = all(each[f"after{suffix}"] > each[f"training{suffix}"] for each in variants.values())
        told.append(
            f"by {reading}: {order} ({after[0]:.3f}, {after[1]:.3f}, {after[2]:.3f}), "
            f"and {'more' if more else 'not always more'} after training than while training"
        )
    like = [f"{row['most']:.0f}" for row in sweep if _falls([row[name] for name in _VARIANTS])]
    others = [f"{row['most']:.0f}" for row in sweep if f"{row['most']:.0f}" not in like]
    told.append(
        f"it depends on CMaxNumTh: the paper's order with {', '.join(like) or 'none'}, "
        f"another one with {', '.join(others) or 'none'}"
    )
    return "; ".join(told)


def _falls(values: Sequence[float]) -> bool:
    return all(one > other for one, other in pairwise(values))


def _figure5(merging: Mapping[str, list[Mapping[str, float]]]) -> str:
    told = []
    for what in ("relabelled", "moved"):
        both = [row[what] for row in merging["InAndBetNode"]]
        peak = both.index(max(both))
        rises = 0 < peak < len(both) - 1 and both[0] < both[peak] > both[-1]
        totals = {name: sum(row[what] for row in rows) for name, rows in merging.items()}
        told.append(
            f"{what}: InAndBetNode {'rises, then falls' if rises else 'does not rise and fall'}, "
            f"{totals['InAndBetNode']:.0f} in all; InNode {totals['InNode']:.0f}"
        )
    return "; ".join(told)


def _figure6(throughput: Mapping[str, float]) -> str:
    ratio = throughput["DRt-Cluster"] / throughput["kd-tree"]
    said = "confirmed" if ratio > 1 else "not confirmed"
    return f"DRt-Cluster has {ratio:.2f} times the throughput of the kd-tree, in counted work: {said}"


def _figure7(throughput: Mapping[str, float]) -> str:
    before, after = throughput["before"], throughput["after"]
    said = "confirmed" if after > before else "not confirmed"
    even = f"max/mean from {throughput['balance_before']:.2f} to {throughput['balance_after']:.2f}"
    return f"throughput from {before:.3f} to {after:.3f} by balancing ({even}): {said}"


def _ours(rows: Sequence[Mapping[str, Any]]) -> str:
    """Beside the best other by its mean. Seeds are paired; a difference within its 95 % interval is none."""
    told = []
    for what in ("messages", "balance", "replication"):
        seen: dict[str, list[float]] = {}
        for row in rows:
            seen.setdefault(row["partitioner"], []).append(row[what])
        ours = seen.pop(_OURS)
        best = min(seen, key=lambda name: mean_of(seen[name]).mean)
        more = paired(ours, seen[best])
        word = (
            "not to be told from" if abs(more.mean) <= more.half else "better than" if more.mean < 0 else "worse than"
        )
        told.append(
            f"{what} {mean_of(ours).mean:.3f}, {word} the best other ({best}, {mean_of(seen[best]).mean:.3f}; "
            f"difference {more.mean:+.3f} ± {more.half:.3f})"
        )
    return "; ".join(told)
