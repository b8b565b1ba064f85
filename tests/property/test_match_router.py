"""A router sends every event to all workers that hold a match."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from matching import Row, Wish, crowd, events_of, on_borders, pairs, rows, subscriptions_of, wishes

from roamcast.match.features import rarest_terms
from roamcast.match.layers import rows_of
from roamcast.match.partitioners.curve import Curve
from roamcast.match.reference import ReferenceMatcher
from roamcast.match.router import Router, Tables


@given(st.lists(st.lists(wishes, max_size=20), min_size=1, max_size=4), st.lists(rows, max_size=20), st.data())
@settings(max_examples=60, deadline=None)
def test_whatever_matches_is_routed(parts: list[list[Wish]], happened: list[Row], data: st.DataObject) -> None:
    """However many tables there were, and whichever were merged."""
    wanted = [wish for part in parts for wish in part]
    worker = np.array(data.draw(st.lists(st.integers(0, 63), min_size=len(wanted), max_size=len(wanted))), np.int64)
    first = 0
    with tempfile.TemporaryDirectory() as folder:
        tables, stack = Tables(Path(folder)), ()
        for part in parts:
            here = np.arange(first, first + len(part))
            stack = tables.push(stack, rows_of(here, subscriptions_of(part)), worker[here])
            first += len(part)
        found = tables.open(stack).route(events_of(happened))
    routed = list(zip(found.event.tolist(), found.worker.tolist(), strict=True))
    matches = ReferenceMatcher(subscriptions_of(wanted)).match(events_of(happened))
    needed = {(event, int(worker[row])) for event, row in pairs(matches)}
    assert needed <= set(routed)
    assert routed == sorted(set(routed))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_points_on_borders_are_routed(seed: int) -> None:
    """Of boxes that begin and end where cells and strips do, and one float beside."""
    rng = np.random.default_rng(seed)
    wanted = crowd(rng)
    happened = on_borders(rng, wanted, 200)
    worker = rng.integers(0, 64, len(wanted))
    rows = rows_of(np.arange(len(wanted)), subscriptions_of(wanted))
    found = Router.of(rows.box, rarest_terms(rows), worker).route(events_of(happened))
    matches = ReferenceMatcher(subscriptions_of(wanted)).match(events_of(happened))
    needed = {(event, int(worker[row])) for event, row in pairs(matches)}
    assert needed <= set(zip(found.event.tolist(), found.worker.tolist(), strict=True))


def test_each_worker_wants_the_strips_of_its_own_boxes(tmp_path: Path) -> None:
    """Two workers have boxes with the same cell and term; an event in one of them goes to its worker alone."""
    tables = Tables(tmp_path)
    wanted = rows_of(np.arange(2), subscriptions_of([(0, 0, 0.4, 0.9, ["fire"]), (0.6, 0, 0.9, 0.9, ["fire"])]))
    router = tables.open(tables.push((), wanted, np.array([0, 63])))
    found = router.route(events_of([(0.2, 0.5, ["fire"]), (0.5, 0.5, ["fire"]), (0.8, 0.5, ["fire"])]))
    assert (found.event.tolist(), found.worker.tolist()) == ([0, 2], [0, 63])


def test_an_event_that_nobody_wants_goes_nowhere(tmp_path: Path) -> None:
    """Elsewhere, or without the term, or without the second one."""
    tables = Tables(tmp_path)
    wanted = rows_of(np.arange(2), subscriptions_of([(0, 0, 1, 1, ["fire"]), (0, 0, 1, 1, ["rain", "wind"])]))
    stack = tables.push((), wanted, np.array([2, 3]))
    events = [(0.5, 0.5, ["fire", "smoke"]), (50, 50, ["fire"]), (0.5, 0.5, ["smoke"]), (0.5, 0.5, ["wind"])]
    found = tables.open(stack).route(events_of([*events, (0.5, 0.5, ["rain", "snow"]), (0.5, 0.5, ["rain", "wind"])]))
    assert (found.event.tolist(), found.worker.tolist()) == ([0, 5], [2, 3])


def test_the_router_sends_events_where_the_curve_does(tmp_path: Path) -> None:
    """By tables in files as by the one in memory."""
    rng = np.random.default_rng(7)
    terms = [[str(term) for term in rng.choice(6, rng.integers(0, 4), replace=False)] for _ in range(400)]
    x, y = rng.uniform(-20, 20, (2, 400))
    wanted = rows_of(
        np.arange(200),
        subscriptions_of([(x[n], y[n], x[n] + 6, y[n] + 4, terms[n]) for n in range(200)]),
    )
    events = events_of([(x[n], y[n], terms[n]) for n in range(200, 400)])
    curve = Curve(4)
    curve.add(wanted)
    worker = np.log2(curve.holdings.mask).astype(np.int64)
    tables = Tables(tmp_path)
    found, expected = tables.open(tables.push((), wanted, worker)).route(events), curve.route(events)
    assert found.event.tolist() == expected.event.tolist()
    assert found.worker.tolist() == expected.worker.tolist()
    assert len(found.event) > 100
