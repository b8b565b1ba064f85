"""Verdicts on the paper's claims, in words, derived from the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from roamcast.lab.experiments.statistics import mean_of, paired

__all__ = ["verdicts"]

_OURS = "curve"
_MEASURES = ("messages", "balance", "replication")
_VARIANTS = ("Sim-NonFre", "Sim-Fre", "Sim-Fre-Co")


def verdicts(figures: Mapping[str, Any], results: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str]:
    """Return a sentence or two for each figure, and for `curve`.

    `figures` has means, `results` the rows of each seed.
    """
    return {
        "figure4": _figure4(figures["figure4"], figures["sweep"]),
        "figure5": _figure5(figures["figure5"]),
        "figure6": _figure6(figures["figure6"]),
        "figure7": _figure7(results["figure7"]),
        "ours": _ours(results["partitioners"]),
        "ours with drift": _ours(results["drift"]),
    }


def _figure4(variants: Mapping[str, Mapping[str, float]], sweep: Sequence[Mapping[str, float]]) -> str:
    parts = []
    for reading, suffix in (("cell and rarest term", ""), ("rectangle and any term", "_weak")):
        after = [variants[name][f"after{suffix}"] for name in _VARIANTS]
        order = "the paper's order" if _falls(after) else "not the paper's order"
        more = all(each[f"after{suffix}"] > each[f"training{suffix}"] for each in variants.values())
        parts.append(
            f"by {reading}: {order} ({after[0]:.3f}, {after[1]:.3f}, {after[2]:.3f}), "
            f"and {'more' if more else 'not always more'} after training than while training"
        )
    like = [f"{row['most']:.0f}" for row in sweep if _falls([row[name] for name in _VARIANTS])]
    others = [f"{row['most']:.0f}" for row in sweep if f"{row['most']:.0f}" not in like]
    parts.append(
        f"it depends on CMaxNumTh: the paper's order with {', '.join(like) or 'none'}, "
        f"another one with {', '.join(others) or 'none'}"
    )
    return "; ".join(parts)


def _falls(values: Sequence[float]) -> bool:
    return all(one > other for one, other in pairwise(values))


def _figure5(by_most: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> str:
    """Values fall if they end below half of their peak."""
    parts = []
    for most, merging in by_most.items():
        for what in ("relabelled", "moved"):
            values_of = {name: [row[what] for row in rows] for name, rows in merging.items()}
            each = [
                f"{name} {'rises, then falls' if _rises_and_falls(values) else 'does not rise and fall'} "
                f"({sum(values):.0f} in total, at most {max(values):.1f} in a tenth, {values[-1]:.1f} in the last)"
                for name, values in values_of.items()
            ]
            parts.append(f"CMaxNumTh {most} per subscription, {what}: {', '.join(each)}")
    return "; ".join(parts)


def _rises_and_falls(values: Sequence[float]) -> bool:
    peak = values.index(max(values))
    return 0 < peak < len(values) - 1 and values[0] < values[peak] > 2 * values[-1]


def _figure6(throughput: Mapping[str, float]) -> str:
    ratio = throughput["DRt-Cluster"] / throughput["kd-tree"]
    said = "confirmed" if ratio > 1 else "not confirmed"
    return f"DRt-Cluster has {ratio:.2f} times the throughput of the kd-tree, in counted work: {said}"


def _figure7(rows: Sequence[Mapping[str, Any]]) -> str:
    """By the paper's rule, only balanced seeds have an overloaded worker."""
    parts = []
    for rule, after, suffix in (("at twice the mean load", "after", ""), ("eagerly", "eager", "_eager")):
        balanced = [row for row in rows if row[f"moved{suffix}"]]
        what = f"{rule}: {len(balanced)} of {len(rows)} seeds have something to balance"
        if balanced:
            before, then = (mean_of([row[name] for row in balanced]).mean for name in ("before", after))
            even = [mean_of([row[f"balance_{name}"] for row in balanced]).mean for name in ("before", after)]
            what += (
                f", where throughput goes from {before:.3f} to {then:.3f} (max/mean from {even[0]:.2f} to "
                f"{even[1]:.2f}): {'confirmed' if then > before else 'not confirmed'}"
            )
        parts.append(what)
    return "; ".join(parts)


def _ours(rows: Sequence[Mapping[str, Any]]) -> str:
    """Compare `curve` with the best of the others for each measure, then with each of the others."""
    values_of = {what: _by_partitioner(rows, what) for what in _MEASURES}
    parts = []
    for what, values in values_of.items():
        others = {name: mean_of(each).mean for name, each in values.items() if name != _OURS}
        best = min(others, key=lambda name: others[name])
        parts.append(
            f"{what} {mean_of(values[_OURS]).mean:.3f}, {_compare(values[_OURS], values[best])} the best other "
            f"({best}, {others[best]:.3f}; difference {paired(values[_OURS], values[best])})"
        )
    for name in values_of[_MEASURES[0]]:
        if name != _OURS:
            words = (f"{_compare(values[_OURS], values[name])} it in {what}" for what, values in values_of.items())
            parts.append(f"compared with {name}: {', '.join(words)}")
    return "; ".join(parts)


def _by_partitioner(rows: Sequence[Mapping[str, Any]], what: str) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for row in rows:
        values.setdefault(row["partitioner"], []).append(row[what])
    return values


def _compare(ours: Sequence[float], others: Sequence[float]) -> str:
    """Compare in words; less is better. Seeds are paired. A difference within its 95 % interval does not count."""
    more = paired(ours, others)
    if abs(more.mean) <= more.half:
        return "not distinguishable from"
    return "better than" if more.mean < 0 else "worse than"
