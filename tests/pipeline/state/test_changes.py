"""What control records change in subscriptions and bindings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from batches import Placed, control, placed
from controls import (
    KnownRows,
    bind,
    binding_rows,
    binding_spans,
    change,
    condition,
    subscription_rows,
    subscription_spans,
    unbind,
)
from hypothesis import given
from hypothesis import strategies as st
from worlds import NOON, event, removal, subscription

from roamcast.journal.bodies import BindingBody, SubscriptionBody, encode_condition
from roamcast.journal.records import BINDING, REMOVAL, SUBSCRIPTION, UNBINDING, Record
from roamcast.lacl import parse
from roamcast.model import Box
from roamcast.pipeline.state.changes import apply_records
from roamcast.pipeline.state.control import Row

AREA = '{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,0]]]}'


def test_a_subscription_starts_at_its_offset() -> None:
    """Its row has the offset and the spec; terms are sorted and distinct."""
    (row,) = subscription_rows(subscription("s1", "ann", (0, -1, 2, 1), ("smoke", "fire", "smoke")))
    assert row == {
        "node": "local", "since": 1, "id": "s1", "subscriber": "ann", "handle": None, "begin": NOON, "min_x": 0.0,
        "min_y": -1.0, "max_x": 2.0, "max_y": 1.0, "terms": ["fire", "smoke"], "circle": None,
        "place": None, "area": None, "source": None, "on": None, "every": None,
        "space": "geographic", "moving_radius": None, "until": None, "removed_in": None,
        "forwarded_until": None, "drained_in": None,
    }  # fmt: skip


def test_a_row_has_everything_in_the_body() -> None:
    """What is tested after box and terms is in columns of its own."""
    on = condition("@level > 1")
    body = SubscriptionBody(Box(0, 0, 1, 1), ("fire",), place="p", area=AREA, on=on, every=5_000_000, space="planar")
    (row,) = subscription_rows(subscription("s1", "ann")._replace(body=body.to_json()))
    values = [row[name] for name in ("circle", "place", "area", "source", "on", "every", "space")]
    assert values == [None, "p", AREA, None, encode_condition(on), 5_000_000, "planar"]


def test_without_a_box_every_point_is_inside() -> None:
    """The row has an infinite box."""
    (row,) = subscription_rows(subscription("s1", "ann", None))
    assert [row[side] for side in ("min_x", "min_y", "max_x", "max_y")] == [-math.inf, -math.inf, math.inf, math.inf]


def test_a_box_may_cross_the_antimeridian() -> None:
    """Then min_x is greater than max_x."""
    (row,) = subscription_rows(subscription("s1", "ann", (170, 0, -170, 1)))
    assert (row["min_x"], row["max_x"]) == (170.0, -170.0)


FULL = SubscriptionBody(Box(0, 0, 1, 1), ("fire",), place="p", area=AREA, every=5)
OTHERS = {
    "subscriber": ("bob", FULL),
    "no box": ("ann", replace(FULL, box=None)),
    "box": ("ann", replace(FULL, box=Box(0, 0, 1, 2))),
    "terms": ("ann", replace(FULL, terms=("ice",))),
    "circle": ("ann", replace(FULL, circle=(0.0, 0.0, 1.0))),
    "source": ("ann", replace(FULL, source=parse("Select all() Where &owner = bob").where)),
    "on": ("ann", replace(FULL, on=condition("@ > 1"))),
    "place": ("ann", replace(FULL, place="q")),
    "area": ("ann", replace(FULL, area=AREA.replace("1,0", "1,0.5"))),
    "every": ("ann", replace(FULL, every=6)),
    "space": ("ann", replace(FULL, space="planar")),
    "moving radius": ("ann", replace(FULL, box=None, moving_radius=5.0)),
}


@pytest.mark.parametrize("other", OTHERS)
def test_creating_it_with_another_content_replaces_it(other: str) -> None:
    """The earlier row ends where the new one starts, whichever part differs."""
    first = Record(SUBSCRIPTION, "ann", id="s1", time=NOON, body=FULL.to_json())
    subscriber, body = OTHERS[other]
    changes = change(
        placed([first._replace(entity=subscriber, body=body.to_json())], first=5), subscription_rows(first)
    )
    assert subscription_spans(changes) == [("local", "s1", 1, 5, 7), ("local", "s1", 5, None, None)]
    assert changes.subscription_growth == 0


def test_a_removal_ends_it() -> None:
    """The row has the offset and the batch."""
    changes = change(placed([removal("s1", "ann")], first=5), subscription_rows(subscription("s1", "ann")))
    assert (subscription_spans(changes), changes.subscription_growth) == ([("local", "s1", 1, 5, 7)], -1)


def test_removed_and_created_again_is_two_rows() -> None:
    """Within one batch, each row has its own start and end."""
    again = [removal("s1", "ann"), subscription("s1", "ann"), removal("s1", "ann"), subscription("s1", "ann")]
    changes = change(placed(again, first=5), subscription_rows(subscription("s1", "ann")))
    assert subscription_spans(changes) == [
        ("local", "s1", 1, 5, 7),
        ("local", "s1", 6, 7, 7),
        ("local", "s1", 8, None, None),
    ]
    assert changes.subscription_growth == 0


def test_created_and_removed_in_one_batch_is_one_ended_row() -> None:
    """It matches the events between the two records; nothing is live afterwards."""
    changes = change(placed([subscription("s1", "ann"), event("cam", 1), removal("s1", "ann")]))
    assert (subscription_spans(changes), changes.subscription_growth) == ([("local", "s1", 1, 3, 7)], 0)


def test_nodes_assign_ids_independently() -> None:
    """The same id at two nodes names two subscriptions: neither replaces nor removes the other."""
    north = subscription_rows(subscription("s1", "ann"), node="north")
    made = change(placed([subscription("s1", "bob")], "south", 3), north)
    assert (subscription_spans(made), made.subscription_growth) == ([("south", "s1", 3, None, None)], 1)
    removed = change(placed([removal("s1", "ann")], "south", 3), north)
    assert (subscription_spans(removed), removed.subscription_growth) == ([], 0)


def test_a_binding_starts_at_its_offset_and_time() -> None:
    """Its row has both, and what the binding lets through."""
    (row,) = binding_rows(bind("b1", "cam", NOON + 3, BindingBody("ann", condition("@level > 1"), 5_000_000)))
    assert row == {
        "node": "local", "since": 1, "id": "b1", "subscriber": "ann", "home": "local", "source": "cam",
        "begin": NOON + 3, "on": encode_condition(condition("@level > 1")),
        "every": 5_000_000, "initial": False, "until": None, "end": None, "final": False,
    }  # fmt: skip


def test_an_unbinding_ends_it() -> None:
    """The row has the offset and the time."""
    changes = change(placed([unbind("b1", "cam", 30)], first=5), bindings=binding_rows(bind("b1", "cam", 10)))
    assert (binding_spans(changes), changes.binding_growth) == ([("b1", "cam", 1, 5, 10, 30)], -1)


def test_a_subscription_may_be_bound_to_several_sources() -> None:
    """Each pair of subscription and source starts and ends separately."""
    rows = placed([bind("b1", "cam", 10), bind("b1", "car", 11), unbind("b1", "cam", 12)])
    changes = change(rows)
    assert binding_spans(changes) == [("b1", "cam", 1, 3, 10, 12), ("b1", "car", 2, None, 11, None)]
    assert changes.binding_growth == 1


def test_bound_again_is_two_rows() -> None:
    """Each has its own start and end."""
    again = [unbind("b1", "cam", 20), bind("b1", "cam", 30), unbind("b1", "cam", 40), bind("b1", "cam", 50)]
    changes = change(placed(again, first=5), bindings=binding_rows(bind("b1", "cam", 10)))
    assert binding_spans(changes) == [
        ("b1", "cam", 1, 5, 10, 20), ("b1", "cam", 6, 7, 30, 40), ("b1", "cam", 8, None, 50, None),
    ]  # fmt: skip
    assert changes.binding_growth == 0


def test_bound_again_to_a_remote_source_before_the_known_end() -> None:
    """Its time is by the clock of another node, as it was known then. The new row follows the last one."""
    known = binding_rows(bind("b1", "cam@south", 10), unbind("b1", "cam@south", 20))
    changes = change(placed([bind("b1", "cam@south", 15)], first=5), bindings=known)
    assert binding_spans(changes) == [("b1", "cam", 5, None, 20, None)]
    early = change(placed([unbind("b1", "cam@south", 12)], first=6), bindings=changes.bindings.to_pylist())
    assert binding_spans(early) == [("b1", "cam", 5, 6, 20, 20)]


def test_records_of_a_remote_source_that_are_journalled_again_change_nothing() -> None:
    """A node that crashed may journal its last records again."""
    records = [bind("b1", "cam@south", 10), unbind("b1", "cam@south", 20), bind("b1", "cam@south", 30)]
    assert binding_spans(change(placed(records, first=5), bindings=binding_rows(*records))) == []
    ended = binding_rows(*records[:2])
    assert binding_spans(change(placed(records[:2], first=5), bindings=ended)) == []


def test_nodes_bind_independently() -> None:
    """An unbinding of one node does not end a binding of another."""
    changes = change(placed([unbind("b1", "cam")], "south"), bindings=binding_rows(bind("b1", "cam"), node="north"))
    assert (binding_spans(changes), changes.binding_growth) == ([], 0)


def test_an_unbinding_does_not_end_a_subscription() -> None:
    """Not even one with the same id."""
    changes = change(placed([unbind("x", "ann")], first=5), subscription_rows(subscription("x", "ann")))
    assert (subscription_spans(changes), binding_spans(changes)) == ([], [])


def test_a_removal_ends_all_bindings_for_good() -> None:
    """Live ones and ended ones: no later event matches them, unless its source is at another node."""
    known = binding_rows(bind("x", "cam", 10), unbind("x", "cam", 20), bind("x", "car", 30), bind("y", "car", 30))
    changes = change(placed([Record(REMOVAL, "ann", id="x", time=40)], first=9), (), known)
    assert binding_spans(changes) == [("x", "cam", 1, 2, 10, 20), ("x", "car", 3, 9, 30, 40)]
    assert changes.bindings["final"].to_pylist() == [True, True]
    assert (changes.binding_growth, changes.removed) == (-1, {("local", "x", "ann"): 9})


def test_a_removal_counts_although_a_remote_clock_is_ahead() -> None:
    """The binding began after the removal, by the clock of the source's home."""
    known = binding_rows(bind("x", "cam@south", 50), unbind("x", "cam@south", 60))
    changes = change(placed([Record(REMOVAL, "ann", id="x", time=40)], first=9), (), known)
    assert changes.bindings["final"].to_pylist() == [False]
    assert changes.removed == {("local", "x", "ann"): 9}


def test_initial_bindings_are_reported() -> None:
    """New bindings with `initial`, in their order, even if they have ended since."""
    first = BindingBody("ann", initial=True)
    rows = placed([bind("b1", "cam", 10, first), bind("b2", "cam", 10), bind("b3", "car", 10, first)])
    rows += placed([unbind("b1", "cam", 20), bind("b3", "car", 20, first)], first=4)
    assert [(row["id"], row["since"]) for row in change(rows).initial] == [("b1", 1), ("b3", 3)]


def test_a_clock_is_the_latest_time_of_a_node() -> None:
    """Bindings and unbindings count, even without effect; subscriptions do not."""
    north = [bind("b1", "cam", 10), unbind("b9", "cam", 40), bind("b2", "cam", 20), subscription("s1", "ann")]
    rows = [*placed(north, "north"), *placed([bind("b1", "cam", 7)], "south")]
    assert change(rows).latest_binding_times == {"north": 40, "south": 7}
    assert change(placed([subscription("s1", "ann")])).latest_binding_times == {}


def test_no_records_change_nothing() -> None:
    """The state is not even queried."""

    class Unused(KnownRows):
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

    changes = apply_records(control([]).records, 7, Unused((), ()))
    assert (
        subscription_spans(changes),
        binding_spans(changes),
        changes.subscription_growth,
        changes.binding_growth,
    ) == ([], [], 0, 0)
    assert (changes.initial, changes.latest_binding_times, changes.dead_letters) == ([], {}, [])


_records = st.one_of(
    st.builds(subscription, st.sampled_from("st"), st.sampled_from(["ann", "bob"])),
    st.builds(removal, st.sampled_from("st"), st.just("ann")),
    st.builds(bind, st.sampled_from("uv"), st.sampled_from("xy"), st.integers(1, 9)),
    st.builds(unbind, st.sampled_from("uv"), st.sampled_from("xy"), st.integers(1, 9)),
)
_batches = st.lists(st.lists(st.tuples(st.sampled_from(["north", "south"]), _records), max_size=8), max_size=4)


@given(batches=_batches)
def test_batches_equal_single_records(batches: list[list[tuple[str, Record]]]) -> None:
    """Wherever batches are cut, the rows are as if each record had been applied alone, and growth adds up."""
    tables: dict[str, dict[tuple[str, int], Row]] = {SUBSCRIPTION: {}, BINDING: {}}
    grown = {SUBSCRIPTION: 0, BINDING: 0}
    alone: dict[str, list[list[Any]]] = {SUBSCRIPTION: [], BINDING: []}  # name, content, since, until, end, begin
    offsets = {"north": 0, "south": 0}
    for batch in batches:
        rows = []
        for node, record in batch:
            offsets[node] += 1
            rows.append(Placed(node, offsets[node], record))
            kind = SUBSCRIPTION if record.kind in (SUBSCRIPTION, REMOVAL) else BINDING
            name = (node, record.id) if kind == SUBSCRIPTION else (node, record.id, record.entity)
            content = record.entity if kind == SUBSCRIPTION else None
            live = [life for life in alone[kind] if life[0] == name and life[3] is None]
            if record.kind in (SUBSCRIPTION, BINDING) and live and live[0][1] == content:
                continue
            ends = [life[4] for life in alone[kind] if life[0] == name and life[3] is not None]
            if record.kind == BINDING and ends and (record.time or 0) <= ends[-1]:
                continue
            if record.kind == UNBINDING and any((record.time or 0) < life[5] for life in live):
                continue
            for life in live:
                life[3:5] = offsets[node], record.time
            if record.kind in (SUBSCRIPTION, BINDING):
                alone[kind].append([name, content, offsets[node], None, None, record.time])
        changes = change(rows, list(tables[SUBSCRIPTION].values()), list(tables[BINDING].values()))
        for kind, written in ((SUBSCRIPTION, changes.subscriptions), (BINDING, changes.bindings)):
            tables[kind].update({(row["node"], row["since"]): row for row in written.to_pylist()})
        grown[SUBSCRIPTION] += changes.subscription_growth
        grown[BINDING] += changes.binding_growth
    for kind, table in tables.items():
        expected = {(name[0], since): (name[1], until) for name, _, since, until, *_ in alone[kind]}
        assert {place: (row["id"], row["until"]) for place, row in table.items()} == expected
        assert grown[kind] == sum(until is None for _, until in expected.values())
