"""Verdicts on the claims of the DRt-Cluster paper."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from roamcast.lab.experiments.drtcluster.verdicts import Verdict, compare_curve, judge, judge_all

Rows = list[dict[str, object]]


@pytest.mark.parametrize(
    ("values", "above", "expected"),
    [
        ((1.2, 1.3, 1.25), True, "confirmed"),
        ((0.7, 0.8, 0.75), True, "not confirmed"),
        ((0.7, 0.8, 0.75), False, "confirmed"),
        ((0.7, 1.6, 1.1), True, "undecided"),
        ((5.0,), True, "undecided"),
        ((), True, "undecided"),
    ],
)
def test_a_claim_is_judged_by_the_interval_of_the_mean(values: Sequence[float], above: bool, expected: str) -> None:
    """One seed has no interval."""
    verdict = judge(6, "ratio", values, 1.0, above=above)
    assert verdict.verdict == expected
    assert verdict.paper == ("> 1" if above else "< 1")
    assert (verdict.ours == "nothing to compare") == (not values)


def results(**replaced: Rows) -> dict[str, Rows]:
    """Results of three seeds in which all values are alike, apart from those replaced."""
    variants = ("Sim-NonFre", "Sim-Fre", "Sim-Fre-Co")
    counts = dict.fromkeys(("training", "after", "training_weak", "after_weak"), 1.0)
    names = dict.fromkeys(("throughput", "messages", "balance", "replication"), 1.0)
    balancing = {"before": 1.0, "after": 1.0, "eager": 1.0, "moved": 0, "moved_eager": 0}
    rows: dict[str, Rows] = {
        "figure4": [{"seed": seed, "variant": name, **counts} for seed in range(3) for name in variants],
        "figure5": merged([1.0] * 10),
        "partitioners": [{"partitioner": name, **names} for _ in range(3) for name in ("DRt-Cluster", "kd-tree")],
        "figure7": [balancing] * 3,
    }
    return {**rows, **replaced}


def merged(values: Sequence[float], stays: Sequence[float] = (1.0,) * 10) -> Rows:
    """Figure 5 with these values for InAndBetNode and others for InNode, a little different in each seed."""
    return [
        {"seed": seed, "terms": "words", "most": 0.2, "merging": name, "tenth": tenth, "relabelled": n, "moved": n}
        for seed in range(3)
        for name, curve in (("InAndBetNode", values), ("InNode", stays))
        for tenth, value in enumerate(curve, 1)
        for n in [value + 0.01 * seed * tenth]
    ]


def verdicts(found: list[Verdict], figure: int, words: str) -> list[str]:
    return [verdict.verdict for verdict in found if verdict.figure == figure and words in verdict.measured]


def test_a_curve_that_rises_and_falls_is_found_by_its_trends() -> None:
    """Also if it ends above half of its peak. One that stays high does not fall."""
    found = judge_all(results(figure5=merged([2, 4, 6, 8, 10, 10, 9, 8, 7, 6], [9, 9, 9, 9, 9, 9, 9, 9, 9, 9])))
    assert verdicts(found, 5, "InAndBetNode, subscriptions relabelled") == ["confirmed", "confirmed"]
    assert verdicts(found, 5, "InNode") == ["confirmed"]
    found = judge_all(results(figure5=merged([2, 4, 6, 8, 10, 11, 12, 13, 14, 15], [9, 9, 9, 9, 9, 9, 7, 5, 3, 1])))
    assert verdicts(found, 5, "InAndBetNode, subscriptions moved") == ["confirmed", "not confirmed"]
    assert verdicts(found, 5, "InNode") == ["not confirmed"]


def test_a_constant_curve_neither_rises_nor_falls() -> None:
    """Not even by a rounding error."""
    rows = [{**row, "relabelled": 7, "moved": 7} for row in merged([0.0] * 10)]
    assert verdicts(judge_all(results(figure5=rows)), 5, "InAndBetNode") == ["undecided"] * 4


def test_timed_throughput_is_judged_for_each_matcher() -> None:
    """DRt-Cluster is faster with one of them, in both measures; the counted work says nothing."""
    speed = {("DRt-Cluster", "one_by_one"): 120.0, ("DRt-Cluster", "index"): 80.0}
    timed: Rows = [
        {
            "seed": seed, "partitioner": name, "matcher": matcher, "workers": 4, "most": 0.5,
            "events_per_s": value, "events_per_cpu_s": value,
        }
        for seed in range(3) for name in ("DRt-Cluster", "kd-tree") for matcher in ("index", "one_by_one")
        for value in [speed.get((name, matcher), 100.0) + seed]
    ]  # fmt: skip
    found = judge_all(results(throughput=timed))
    assert verdicts(found, 6, "one_by_one") == ["confirmed", "confirmed"]
    assert verdicts(found, 6, ", index,") == ["not confirmed", "not confirmed"]
    assert verdicts(found, 6, "counted") == ["undecided"]


def test_balancing_is_judged_only_where_something_moved() -> None:
    """By the paper's rule in one seed of three; eagerly in all, which makes it worse."""
    row = {"before": 1.0, "after": 1.2, "eager": 0.9, "moved": 0, "moved_eager": 3}
    rows: Rows = [row, {**row, "eager": 0.88}, {**row, "moved": 2}]
    paper, eager = (verdict for verdict in judge_all(results(figure7=rows)) if verdict.figure == 7)
    assert (paper.seeds, paper.verdict) == (1, "undecided")
    assert (eager.seeds, eager.verdict) == (3, "not confirmed")


@pytest.mark.parametrize(
    ("ours", "word"),
    [
        ((0.8, 0.82, 0.81), "better than"),
        ((1.3, 1.29, 1.31), "worse than"),
        ((0.5, 1.6, 0.8), "not distinguishable from"),
    ],
)
def test_a_difference_within_its_confidence_interval_is_none(ours: tuple[float, ...], word: str) -> None:
    """Seeds are paired."""
    names = ("messages", "balance", "replication")
    rows = [{"partitioner": "curve", **dict.fromkeys(names, each)} for each in ours]
    others = [{"partitioner": "kd-tree", **dict.fromkeys(names, 1.0)} for _ in ours]
    comparison = compare_curve([*rows, *others])
    assert f", {word} the best other (kd-tree" in comparison
    assert f"compared with kd-tree: {word} it in messages, {word} it in balance" in comparison
