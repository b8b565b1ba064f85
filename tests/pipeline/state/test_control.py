"""Control: what a batch's records change in subscriptions and bindings."""

from __future__ import annotations

import math
from typing import Any

import pytest
from controls import KnownRows, bind, bonds, change, lives, spans, unbind, wishes
from hypothesis import given
from hypothesis import strategies as st
from pure import Placed, control, placed
from worlds import NOON, event, removal, subscription

from roamcast.journal.bodies import BindingBody, SubscriptionBody
from roamcast.journal.records import BINDING, REMOVAL, SUBSCRIPTION, UNBINDING, Record
from roamcast.model import Box
from roamcast.pipeline.state.control import Row, changes_of

AREA = '{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,0]]]}'


def test_a_subscription_begins_at_its_place() -> None:
    """Its row carries where it counts from and what it asks for, terms sorted and each once."""
    (row,) = wishes(subscription("s1", "ann", (0, -1, 2, 1), ("smoke", "fire", "smoke")))
    assert row == {
        "node": "local", "since": 1, "id": "s1", "subscriber": "ann", "handle": None, "begin": NOON, "min_x": 0.0,
        "min_y": -1.0, "max_x": 2.0, "max_y": 1.0, "terms": ["fire", "smoke"], "circle": None,
        "place": None, "area": None, "source": None, "on": None, "every": None,
        "space": "geographic", "around": None, "until": None, "removed_in": None,
    }  # fmt: skip


def test_a_subscription_brings_all_of_its_body() -> None:
    """What is tested after box and terms lies in the row, each part of it apart."""
    text = 'Select all() Where &location in within("p") and &terms has ("fire")\nOn @level > 1\nEvery 5 s'
    body = SubscriptionBody(Box(0, 0, 1, 1), ("fire",), text, AREA, 5_000_000, "planar")
    (row,) = wishes(subscription("s1", "ann")._replace(body=body.to_json()))
    asked = [row[name] for name in ("circle", "place", "area", "source", "on", "every", "space")]
    assert asked == [None, "p", AREA, None, "@level > 1", 5_000_000, "planar"]


def test_no_box_is_the_whole_plane() -> None:
    """Without a box every point is inside."""
    (row,) = wishes(subscription("s1", "ann", None))
    assert [row[side] for side in ("min_x", "min_y", "max_x", "max_y")] == [-math.inf, -math.inf, math.inf, math.inf]


def test_a_box_across_the_antimeridian_is_a_box() -> None:
    """min_x may be above max_x."""
    (row,) = wishes(subscription("s1", "ann", (170, 0, -170, 1)))
    assert (row["min_x"], row["max_x"]) == (170.0, -170.0)


FULL = SubscriptionBody(
    Box(0, 0, 1, 1), ("fire",), 'Select all() Where &location in within("p") and &terms has ("fire")', AREA, 5
)
OTHERS = {
    "subscriber": ("bob", FULL),
    "no box": ("ann", SubscriptionBody(None, FULL.terms, FULL.query, AREA, 5)),
    "box": ("ann", SubscriptionBody(Box(0, 0, 1, 2), FULL.terms, FULL.query, AREA, 5)),
    "terms": ("ann", SubscriptionBody(FULL.box, ("ice",), FULL.query, AREA, 5)),
    "query": ("ann", SubscriptionBody(FULL.box, FULL.terms, f"{FULL.query}\nOn @ > 1", AREA, 5)),
    "area": ("ann", SubscriptionBody(FULL.box, FULL.terms, FULL.query, AREA.replace("1,0", "1,0.5"), 5)),
    "every": ("ann", SubscriptionBody(FULL.box, FULL.terms, FULL.query, AREA, 6)),
    "space": ("ann", SubscriptionBody(FULL.box, FULL.terms, FULL.query, AREA, 5, "planar")),
    "around": ("ann", SubscriptionBody(None, FULL.terms, FULL.query, AREA, 5, around=5.0)),
}


@pytest.mark.parametrize("other", OTHERS)
def test_making_it_with_other_content_replaces_it(other: str) -> None:
    """The earlier row ends where the new one begins, whatever part is another."""
    first = Record(SUBSCRIPTION, "ann", id="s1", time=NOON, body=FULL.to_json())
    subscriber, body = OTHERS[other]
    changes = change(placed([first._replace(entity=subscriber, body=body.to_json())], first=5), wishes(first))
    assert lives(changes) == [("local", "s1", 1, 5, 7), ("local", "s1", 5, None, None)]
    assert changes.more_subscriptions == 0


def test_a_removal_ends_it() -> None:
    """The row says at which offset and in which batch."""
    changes = change(placed([removal("s1", "ann")], first=5), wishes(subscription("s1", "ann")))
    assert (lives(changes), changes.more_subscriptions) == ([("local", "s1", 1, 5, 7)], -1)


def test_removed_and_made_again_is_two_rows() -> None:
    """Within one batch each of its lives has its own beginning and end."""
    again = [removal("s1", "ann"), subscription("s1", "ann"), removal("s1", "ann"), subscription("s1", "ann")]
    changes = change(placed(again, first=5), wishes(subscription("s1", "ann")))
    assert lives(changes) == [
        ("local", "s1", 1, 5, 7),
        ("local", "s1", 6, 7, 7),
        ("local", "s1", 8, None, None),
    ]
    assert changes.more_subscriptions == 0


def test_made_and_removed_in_one_batch_is_one_ended_row() -> None:
    """It counts for the events between the two records, and nothing is live afterwards."""
    changes = change(placed([subscription("s1", "ann"), event("cam", 1), removal("s1", "ann")]))
    assert (lives(changes), changes.more_subscriptions) == ([("local", "s1", 1, 3, 7)], 0)


def test_nodes_give_ids_on_their_own() -> None:
    """The same id at two nodes names two subscriptions: neither replaces nor removes the other."""
    north = wishes(subscription("s1", "ann"), node="north")
    made = change(placed([subscription("s1", "bob")], "south", 3), north)
    assert (lives(made), made.more_subscriptions) == ([("south", "s1", 3, None, None)], 1)
    removed = change(placed([removal("s1", "ann")], "south", 3), north)
    assert (lives(removed), removed.more_subscriptions) == ([], 0)


def test_a_binding_begins_at_its_place_and_time() -> None:
    """Its row carries since when it counts, by offset and by clock, and what it lets through."""
    (row,) = bonds(bind("b1", "cam", NOON + 3, BindingBody("ann", "@level > 1", 5_000_000)))
    assert row == {
        "node": "local", "since": 1, "id": "b1", "subscriber": "ann", "home": "local", "source": "cam",
        "begin": NOON + 3, "on": "@level > 1", "every": 5_000_000, "until": None, "end": None, "final": False,
    }  # fmt: skip


def test_an_unbinding_ends_it() -> None:
    """The row says at which offset, and when."""
    changes = change(placed([unbind("b1", "cam", 30)], first=5), bonds=bonds(bind("b1", "cam", 10)))
    assert (spans(changes), changes.more_bindings) == ([("b1", "cam", 1, 5, 10, 30)], -1)


def test_a_subscription_may_be_bound_to_several_sources() -> None:
    """Each pair of subscription and source begins and ends on its own."""
    rows = placed([bind("b1", "cam", 10), bind("b1", "car", 11), unbind("b1", "cam", 12)])
    changes = change(rows)
    assert spans(changes) == [("b1", "cam", 1, 3, 10, 12), ("b1", "car", 2, None, 11, None)]
    assert changes.more_bindings == 1


def test_bound_again_is_two_rows() -> None:
    """Each time it is bound has its own beginning and end."""
    again = [unbind("b1", "cam", 20), bind("b1", "cam", 30), unbind("b1", "cam", 40), bind("b1", "cam", 50)]
    changes = change(placed(again, first=5), bonds=bonds(bind("b1", "cam", 10)))
    assert spans(changes) == [
        ("b1", "cam", 1, 5, 10, 20), ("b1", "cam", 6, 7, 30, 40), ("b1", "cam", 8, None, 50, None),
    ]  # fmt: skip
    assert changes.more_bindings == 0


def test_nodes_bind_on_their_own() -> None:
    """An unbinding of one node ends nothing of another."""
    changes = change(placed([unbind("b1", "cam")], "south"), bonds=bonds(bind("b1", "cam"), node="north"))
    assert (spans(changes), changes.more_bindings) == ([], 0)


def test_an_unbinding_ends_no_subscription() -> None:
    """Of the same id neither."""
    changes = change(placed([unbind("x", "ann")], first=5), wishes(subscription("x", "ann")))
    assert (lives(changes), spans(changes)) == ([], [])


def test_a_removal_ends_all_bindings_for_good() -> None:
    """Those that are live, and those that have ended: no event after it is to meet them."""
    known = bonds(bind("x", "cam", 10), unbind("x", "cam", 20), bind("x", "car", 30), bind("y", "car", 30))
    changes = change(placed([Record(REMOVAL, "ann", id="x", time=40)], first=9), (), known)
    assert spans(changes) == [("x", "cam", 1, 2, 10, 20), ("x", "car", 3, 9, 30, 40)]
    assert changes.bindings["final"].to_pylist() == [True, True]
    assert (changes.more_bindings, changes.removed) == (-1, {("local", "x"): 9})


def test_first_bindings_are_told_apart() -> None:
    """Those that are made and say so, in the order they were made; also if they ended since."""
    first = BindingBody("ann", initial=True)
    rows = placed([bind("b1", "cam", 10, first), bind("b2", "cam", 10), bind("b3", "car", 10, first)])
    rows += placed([unbind("b1", "cam", 20), bind("b3", "car", 20, first)], first=4)
    assert [(row["id"], row["since"]) for row in change(rows).initial] == [("b1", 1), ("b3", 3)]


def test_a_clock_is_the_latest_time_that_a_node_tells() -> None:
    """Bindings and their ends tell it, subscriptions do not; what changes nothing tells it too."""
    north = [bind("b1", "cam", 10), unbind("b9", "cam", 40), bind("b2", "cam", 20), subscription("s1", "ann")]
    rows = [*placed(north, "north"), *placed([bind("b1", "cam", 7)], "south")]
    assert change(rows).clocks == {"north": 40, "south": 7}
    assert change(placed([subscription("s1", "ann")])).clocks == {}


def test_no_records_change_nothing() -> None:
    """Nothing in, nothing out, and nobody is asked."""

    class Unasked(KnownRows):
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

    changes = changes_of(control([]).records, 7, Unasked((), ()))
    assert (lives(changes), spans(changes), changes.more_subscriptions, changes.more_bindings) == ([], [], 0, 0)
    assert (changes.initial, changes.clocks, changes.set_aside) == ([], {}, [])


_records = st.one_of(
    st.builds(subscription, st.sampled_from("st"), st.sampled_from(["ann", "bob"])),
    st.builds(removal, st.sampled_from("st"), st.just("ann")),
    st.builds(bind, st.sampled_from("uv"), st.sampled_from("xy"), st.integers(1, 9)),
    st.builds(unbind, st.sampled_from("uv"), st.sampled_from("xy"), st.integers(1, 9)),
)
_batches = st.lists(st.lists(st.tuples(st.sampled_from(["north", "south"]), _records), max_size=8), max_size=4)


@given(batches=_batches)
def test_equals_one_record_after_the_other(batches: list[list[tuple[str, Record]]]) -> None:
    """Wherever batches are cut, rows end up as if each record had been applied alone, and growth adds up."""
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
        grown[SUBSCRIPTION] += changes.more_subscriptions
        grown[BINDING] += changes.more_bindings
    for kind, table in tables.items():
        expected = {(name[0], since): (name[1], until) for name, _, since, until, *_ in alone[kind]}
        assert {place: (row["id"], row["until"]) for place, row in table.items()} == expected
        assert grown[kind] == sum(until is None for _, until in expected.values())
