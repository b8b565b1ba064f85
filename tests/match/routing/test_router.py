"""The router sends every event to all workers with a match."""

from __future__ import annotations

import tempfile
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matching import (
    WORLD,
    EventRow,
    SubscriptionRow,
    any_event,
    any_subscription,
    border_points,
    dense_boxes,
    events_of,
    pairs,
    subscriptions_of,
)

from roamcast.errors import CorruptionError
from roamcast.lab.models.matcher import ReferenceMatcher
from roamcast.match.index.rows import index_rows, select_events, select_rows
from roamcast.match.partitioners.curve import CurvePartitioner
from roamcast.match.port import Matches
from roamcast.match.routing.features import rarest_terms
from roamcast.match.routing.partitioner import NO_WORKER, PlacementChanges
from roamcast.match.routing.router import Router, RoutingTables

SECRET = "of these tests"
NO_MATCHES = Matches(np.empty(0, np.int64), np.empty(0, np.int64))


@given(
    st.lists(st.lists(any_subscription, max_size=20), min_size=1, max_size=4),
    st.lists(any_event, max_size=20),
    st.data(),
)
def test_an_event_is_routed_to_every_worker_with_a_match(
    parts: list[list[SubscriptionRow]], event_rows: list[EventRow], data: st.DataObject
) -> None:
    """However many tables there were, and whichever were merged."""
    wanted = [subscription for part in parts for subscription in part]
    worker = np.array(data.draw(st.lists(st.integers(0, 63), min_size=len(wanted), max_size=len(wanted))), np.int64)
    first = 0
    with tempfile.TemporaryDirectory() as folder:
        tables, stack = RoutingTables(Path(folder)), ()
        for part in parts:
            here = np.arange(first, first + len(part))
            stack = tables.push(stack, index_rows(here, subscriptions_of(part)), worker[here], SECRET)
            first += len(part)
        found = tables.open(stack).route(events_of(event_rows))
    routed = list(zip(found.event.tolist(), found.worker.tolist(), strict=True))
    matches = ReferenceMatcher(subscriptions_of(wanted)).match(events_of(event_rows))
    needed = {(event, int(worker[row])) for event, row in pairs(matches)}
    assert needed <= set(routed)
    assert routed == sorted(set(routed))


@given(st.integers(0, 2**32 - 1))
def test_points_on_borders_are_routed(seed: int) -> None:
    """Of boxes that begin and end at borders of cells and strips, or one float beside."""
    rng = np.random.default_rng(seed)
    wanted = dense_boxes(rng)
    event_rows = border_points(rng, wanted, 200)
    worker = rng.integers(0, 64, len(wanted))
    rows = index_rows(np.arange(len(wanted)), subscriptions_of(wanted))
    found = Router.of(rows.box, rarest_terms(rows), worker).route(events_of(event_rows))
    matches = ReferenceMatcher(subscriptions_of(wanted)).match(events_of(event_rows))
    needed = {(event, int(worker[row])) for event, row in pairs(matches)}
    assert needed <= set(zip(found.event.tolist(), found.worker.tolist(), strict=True))


def test_an_event_is_routed_by_the_strips_of_each_worker(tmp_path: Path) -> None:
    """Two workers have boxes with the same cell and term; an event in one of them goes to one worker."""
    tables = RoutingTables(tmp_path)
    wanted = index_rows(np.arange(2), subscriptions_of([(0, 0, 0.4, 0.9, ["fire"]), (0.6, 0, 0.9, 0.9, ["fire"])]))
    router = tables.open(tables.push((), wanted, np.array([0, 63]), SECRET))
    found = router.route(events_of([(0.2, 0.5, ["fire"]), (0.5, 0.5, ["fire"]), (0.8, 0.5, ["fire"])]))
    assert (found.event.tolist(), found.worker.tolist()) == ([0, 2], [0, 63])


def test_an_event_without_matches_is_not_routed(tmp_path: Path) -> None:
    """Outside the box, without the term, or without the second term."""
    tables = RoutingTables(tmp_path)
    wanted = index_rows(np.arange(2), subscriptions_of([(0, 0, 1, 1, ["fire"]), (0, 0, 1, 1, ["rain", "wind"])]))
    stack = tables.push((), wanted, np.array([2, 3]), SECRET)
    events = [(0.5, 0.5, ["fire", "smoke"]), (50, 50, ["fire"]), (0.5, 0.5, ["smoke"]), (0.5, 0.5, ["wind"])]
    found = tables.open(stack).route(events_of([*events, (0.5, 0.5, ["rain", "snow"]), (0.5, 0.5, ["rain", "wind"])]))
    assert (found.event.tolist(), found.worker.tolist()) == ([0, 5], [2, 3])


@pytest.mark.parametrize("terms", [2, 8, 9, 12])
def test_all_pairs_of_an_event_with_many_terms_are_looked_up(tmp_path: Path, terms: int) -> None:
    """Each pair of terms is some subscription's, held by different workers."""
    words = [f"w{n:02}" for n in range(terms)]
    both = list(combinations(words, 2))
    wanted = index_rows(np.arange(len(both)), subscriptions_of([(0, 0, 1, 1, pair) for pair in both]))
    tables, events = RoutingTables(tmp_path), events_of([(0.5, 0.5, words)])
    for chosen in range(len(both)):
        worker = (np.arange(len(both)) == chosen).astype(np.int64)
        found = tables.open(tables.push((), wanted, worker, SECRET)).route(events)
        assert found.worker.tolist() == sorted(set(worker.tolist()))


def test_points_at_infinity_are_routed_to_unbounded_boxes(tmp_path: Path) -> None:
    """They are in no bounded cell."""
    tables = RoutingTables(tmp_path)
    wanted = index_rows(np.arange(2), subscriptions_of([(*WORLD, ["fire"]), (0, 0, 1, 1, ["fire"])]))
    router = tables.open(tables.push((), wanted, np.array([5, 6]), SECRET))
    found = router.route(events_of([(np.inf, 0.5, ["fire"]), (-np.inf, np.inf, ["fire"]), (0.5, 0.5, ["fire"])]))
    assert (found.event.tolist(), found.worker.tolist()) == ([0, 1, 2, 2], [5, 5, 5, 6])


def test_few_messages_are_false_positives(tmp_path: Path) -> None:
    """Boxes are known to a sixteenth of a cell, subscriptions by two terms; in a file as in memory."""
    rng = np.random.default_rng(7)
    terms = [[str(term) for term in rng.choice(6, rng.integers(0, 4), replace=False)] for _ in range(1_200)]
    x, y = rng.uniform(-20, 20, (2, 1_200))
    wanted = subscriptions_of([(x[n], y[n], x[n] + 6, y[n] + 4, terms[n]) for n in range(200)])
    events = events_of([(x[n], y[n], terms[n]) for n in range(200, 1_200)])
    rows, worker = index_rows(np.arange(200), wanted), rng.integers(0, 8, 200)
    found = Router.of(rows.box, rarest_terms(rows), worker).route(events)
    tables = RoutingTables(tmp_path)
    filed = tables.open(tables.push((), rows, worker, SECRET)).route(events)
    assert filed.event.tolist() == found.event.tolist()
    assert filed.worker.tolist() == found.worker.tolist()
    sent = set(zip(found.event.tolist(), found.worker.tolist(), strict=True))
    needed = {(event, int(worker[row])) for event, row in pairs(ReferenceMatcher(wanted).match(events))}
    assert needed <= sent
    assert len(sent) < 1.4 * len(needed)


def test_tables_with_different_secrets_are_not_merged(tmp_path: Path) -> None:
    """They are merged by digests, which depend on the secret."""
    tables = RoutingTables(tmp_path)
    wanted = index_rows(np.arange(1), subscriptions_of([(0, 0, 1, 1, ["fire"])]))
    stack = tables.push((), wanted, np.array([0]), SECRET)
    with pytest.raises(CorruptionError, match="secret"):
        tables.push(stack, wanted, np.array([0]), "another")


def test_a_curve_routes_by_its_current_placement() -> None:
    """After adding, removing and balancing, events go where the subscriptions are."""
    rng = np.random.default_rng(8)
    x = rng.uniform(-50, 50, 400)
    wanted = index_rows(np.arange(400), subscriptions_of([(at, at, at + 1, at + 1, ["fire"]) for at in x]))
    events = events_of([(at + 0.5, at + 0.5, ["fire"]) for at in x])
    curve, holder = CurvePartitioner(4), dict[int, int]()

    def follow(moves: PlacementChanges) -> None:
        for handle, target in zip(moves.handle.tolist(), moves.target.tolist(), strict=True):
            holder[handle] = target
        routed = curve.route(events)
        sent = set(zip(routed.event.tolist(), routed.worker.tolist(), strict=True))
        assert all((handle, worker) in sent for handle, worker in holder.items() if worker != NO_WORKER)

    follow(curve.add(select_rows(wanted, np.arange(200))))
    follow(curve.add(select_rows(wanted, np.arange(200, 400))))
    curve.observe(select_events(events, np.repeat(np.flatnonzero(x > 40), 20)), NO_MATCHES)
    moves = curve.balance()
    assert len(moves.handle)
    follow(moves)
    before = len(curve.route(events).event)
    follow(curve.remove(np.arange(100)))
    assert len(curve.route(events).event) < before
