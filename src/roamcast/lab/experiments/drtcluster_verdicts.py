"""What came of the paper's claims, in words, by the figures themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from roamcast.lab.experiments.statistics import mean_of, paired

__all__ = ["verdicts"]

_OURS = "curve"
_MEASURES = ("messages", "balance", "replication")
_VARIANTS = ("Sim-NonFre", "Sim-Fre", "Sim-Fre-Co")


def verdicts(figures: Mapping[str, Any], spreads: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str]:
    """A sentence or two for each figure, and for the partitioner of our own. `figures` has means, `spreads` what came
    of each seed."""
    return {
        "figure4": _figure4(figures["figure4"], figures["sweep"]),
        "figure5": _figure5(figures["figure5"]),
        "figure6": _figure6(figures["figure6"]),
        "figure7": _figure7(spreads["figure7"]),
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


def _figure5(by_most: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> str:
    """What falls to less than half of its peak by the end falls."""
    told = []
    for most, merging in by_most.items():
        for what in ("relabelled", "moved"):
            seen = {name: [row[what] for row in rows] for name, rows in merging.items()}
            each = [
                f"{name} {'rises, then falls' if _rises_and_falls(values) else 'does not rise and fall'} "
                f"({sum(values):.0f} in all, at most {max(values):.1f} in a tenth, {values[-1]:.1f} in the last)"
                for name, values in seen.items()
            ]
            told.append(f"CMaxNumTh {most} of the subscriptions, {what}: {', '.join(each)}")
    return "; ".join(told)


def _rises_and_falls(values: Sequence[float]) -> bool:
    peak = values.index(max(values))
    return 0 < peak < len(values) - 1 and values[0] < values[peak] > 2 * values[-1]


def _figure6(throughput: Mapping[str, float]) -> str:
    ratio = throughput["DRt-Cluster"] / throughput["kd-tree"]
    said = "confirmed" if ratio > 1 else "not confirmed"
    return f"DRt-Cluster has {ratio:.2f} times the throughput of the kd-tree, in counted work: {said}"


def _figure7(rows: Sequence[Mapping[str, Any]]) -> str:
    """By the paper's rule only some seeds have a worker that is overloaded."""
    told = []
    for rule, after, suffix in (("from twice the mean on", "after", ""), ("eagerly", "eager", "_eager")):
        some = [row for row in rows if row[f"moved{suffix}"]]
        what = f"{rule}: {len(some)} of {len(rows)} seeds have anything to balance"
        if some:
            before, then = (mean_of([row[name] for row in some]).mean for name in ("before", after))
            even = [mean_of([row[f"balance_{name}"] for row in some]).mean for name in ("before", after)]
            what += (
                f", there throughput goes from {before:.3f} to {then:.3f} (max/mean from {even[0]:.2f} to "
                f"{even[1]:.2f}): {'confirmed' if then > before else 'not confirmed'}"
            )
        told.append(what)
    return "; ".join(told)


def _ours(rows: Sequence[Mapping[str, Any]]) -> str:
    """Beside the best other by its mean, measure by measure; then beside each of the others."""
    seen = {what: _by_partitioner(rows, what) for what in _MEASURES}
    told = []
    for what, values in seen.items():
        others = {name: mean_of(each).mean for name, each in values.items() if name != _OURS}
        best = min(others, key=lambda name: others[name])
        told.append(
            f"{what} {mean_of(values[_OURS]).mean:.3f}, {_word(values[_OURS], values[best])} the best other "
            f"({best}, {others[best]:.3f}; difference {paired(values[_OURS], values[best])})"
        )
    for name in seen[_MEASURES[0]]:
        if name != _OURS:
            words = (f"{_word(values[_OURS], values[name])} it in {what}" for what, values in seen.items())
            told.append(f"beside {name}: {', '.join(words)}")
    return "; ".join(told)


def _by_partitioner(rows: Sequence[Mapping[str, Any]], what: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row["partitioner"], []).append(row[what])
    return found


def _word(ours: Sequence[float], others: Sequence[float]) -> str:
    """Less is better. Seeds are paired; a difference within its 95 % interval is none."""
    more = paired(ours, others)
    if abs(more.mean) <= more.half:
        return "not to be told from"
    return "better than" if more.mean < 0 else "worse than"
