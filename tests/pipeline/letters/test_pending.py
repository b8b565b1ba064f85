"""Pending letters: who gets which event and why, and initial bindings."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
import shapely
from controls import condition
from hypothesis import given
from hypothesis import strategies as st
from worlds import NOON

from roamcast.journal.bodies import LINK, SubscriptionBody, encode_condition
from roamcast.lacl import check, parse
from roamcast.model import Box
from roamcast.pipeline.letters.pending import (
    letters_of_bindings,
    letters_of_initial_bindings,
    letters_of_matches,
)
from roamcast.pipeline.schemas import BINDINGS, MATCHED_SCHEMA, PENDING_SCHEMA, SOURCES, SUBSCRIPTIONS
from roamcast.pipeline.state.control import SubscriptionSpec
from roamcast.pipeline.state.lookups import TableLookup
from roamcast.pipeline.state.parts import PartFolder
from roamcast.places import Places
from roamcast.space import GEOGRAPHIC


def events_table(*rows: Mapping[str, Any]) -> pa.Table:
    """Events as tasks return them; by default the n-th has offset n."""
    plain = {"node": "local", "home": "local", "entity": "cam", "complete": True, "subscriptions": [], "bindings": []}
    return pa.Table.from_pylist([{**plain, "offset": n, **row} for n, row in enumerate(rows, 1)], MATCHED_SCHEMA)


def subscription_row(number: int, body: SubscriptionBody, **more: Any) -> dict[str, Any]:
    """A row of SUBSCRIPTIONS."""
    spec = {**SubscriptionSpec.from_body(body.to_json())._asdict(), "terms": list(body.terms)}
    return {"node": "local", "since": number, "id": f"s{number}", "subscriber": "ann", **spec, **more}


def why(folder: Path, body: SubscriptionBody) -> str:
    """Why an event matched a subscription."""
    subscriptions = lookup(folder, SUBSCRIPTIONS, [subscription_row(1, body)])
    (text,) = letters_of_matches(events_table({"time": 5, "event": "{}", "subscriptions": [0]}), subscriptions)[
        "why"
    ].to_pylist()
    return str(text)


@pytest.mark.parametrize(
    ("box", "terms", "text"),
    [
        (Box(0, -1.5, 2, 3), (), "in box(0, -1.5, 2, 3)"),
        (None, ("fire",), 'has "fire"'),
        (None, ("fire", 'a "b"'), 'has "fire" and "a \\"b\\""'),
        (Box(170, 0, -170, 1), ("fire",), 'in box(170, 0, -170, 1), has "fire"'),
        (None, (), ""),
    ],
)
def test_why_names_box_and_terms(tmp_path: Path, box: Box | None, terms: tuple[str, ...], text: str) -> None:
    """As they were subscribed."""
    assert why(tmp_path, SubscriptionBody(box, terms)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("&location in circle(1, 2, 30)", "in circle(1, 2, 30)"),
        ('&location in within("p") and &terms has ("fire")', 'in within("p"), has "fire"'),
        ("&location in box(0, 0, 1, 1) On @level > 1", "in box(0, 0, 1, 1), @level > 1"),
        ('&location in within("p") On @level > 1', 'in within("p"), @level > 1'),
        ("&location in circle(0, 0, 5) and &owner = bob On @level > 1", "in circle(0, 0, 5), &owner = bob, @level > 1"),
        ("&location in box(0, 0, 1, 1) and &owner = bob", "in box(0, 0, 1, 1), &owner = bob"),
        ('&terms has ("fire") and &owner = bob Every 5 s',
         'has "fire", &owner = bob'),
        ('&terms has ("a") or &terms has ("b")', '&terms has ("a") or &terms has ("b")'),
        ('&location in box(0, 0, 1, 1) and &owner = "x."', 'in box(0, 0, 1, 1), &owner = x.'),
    ],
)  # fmt: skip
def test_why_names_all_conditions(tmp_path: Path, text: str, expected: str) -> None:
    """All conditions on the event, without Every and life-control."""
    query = check(parse(f"Select all() Where {text}"))
    body = SubscriptionBody.of(query, Places({"p": shapely.box(0, 0, 1, 1)}), GEOGRAPHIC)
    assert why(tmp_path, body) == expected


def test_a_match_is_a_pending_letter(tmp_path: Path) -> None:
    """One for each pair of event and subscription, in this order."""
    rows = [
        subscription_row(4, SubscriptionBody(None, ("a",))),
        subscription_row(7, SubscriptionBody(None, ("b",), every=9), node="south", subscriber="bob"),
    ]
    events = events_table(
        {"time": 5, "event": '{"e":1}', "subscriptions": [1, 0]},
        {"time": 6},
        {"time": 7, "event": '{"e":3}', "subscriptions": [1], "node": "north"},
    )
    letters = letters_of_matches(events, lookup(tmp_path, SUBSCRIPTIONS, rows))
    assert letters.schema.equals(PENDING_SCHEMA)
    assert [tuple(letter.values()) for letter in letters.to_pylist()] == [
        ("local", 1, 5, '{"e":1}', None, "south", "bob", "s7", 9, 'has "b"', None),
        ("local", 1, 5, '{"e":1}', None, "local", "ann", "s4", None, 'has "a"', None),
        ("north", 3, 7, '{"e":3}', None, "south", "bob", "s7", 9, 'has "b"', None),
    ]


def test_long_attributes_are_not_copied_for_each_receiver(tmp_path: Path) -> None:
    """3,000 times 800 KB would be more than Arrow and memory have room for. Only what is for links needs them."""
    rows = [subscription_row(n, SubscriptionBody(None, ("a",)), subscriber=f"r{n}") for n in range(2_999)]
    rows.append(subscription_row(2_999, SubscriptionBody(None, ()), subscriber=f"{LINK}link"))
    attributes = orjson.dumps({"text": "x" * 800_000}).decode()
    events = events_table({"time": 5, "event": "{}", "attributes": attributes, "subscriptions": list(range(3_000))})
    letters = letters_of_matches(events, lookup(tmp_path, SUBSCRIPTIONS, rows))
    assert (letters.num_rows, letters["attributes"].drop_null().to_pylist()) == (3_000, [attributes])


def lookup(folder: Path, table: Any, *parts: Sequence[Mapping[str, Any]]) -> TableLookup:
    tables = [pa.Table.from_pylist(list(rows), table.schema) for rows in parts]
    return TableLookup(folder, table.name, [PartFolder(folder).write(table, rows) for rows in tables])


def binding(since: int, **more: Any) -> dict[str, Any]:
    """A row of BINDINGS."""
    plain = {
        "node": "local", "since": since, "id": f"b{since}", "subscriber": "ann", "home": "local", "source": "cam",
        "begin": NOON,
    }  # fmt: skip
    if more.get("on") is not None:
        more["on"] = encode_condition(condition(more["on"]))
    return {**plain, "on": None, "every": None, **more}


def test_an_event_of_a_bound_source_is_a_pending_letter(tmp_path: Path) -> None:
    """`why` names the source, since when it is bound, and the condition."""
    bindings = lookup(tmp_path, BINDINGS, [binding(1)], [binding(2, subscriber="bob", on="@level > 1", every=9)])
    rows = bindings.find(("node", "since"), [pa.array(["local"] * 2), pa.array([1, 2])]).row.tolist()
    letters = letters_of_bindings(events_table({"time": 5, "event": "{}", "bindings": rows}, {"time": 6}), bindings)
    assert letters.schema.equals(PENDING_SCHEMA)
    since = "cam has been bound since 2023-11-14T22:13:20Z"
    assert [tuple(letter.values()) for letter in letters.to_pylist()] == [
        ("local", 1, 5, "{}", None, "local", "ann", "b1", None, since, None),
        ("local", 1, 5, "{}", None, "local", "bob", "b2", 9, f"{since}, and @level > 1", None),
    ]


@pytest.mark.parametrize("time", [-62_135_596_800_000_000, 253_402_300_799_999_999])
def test_times_of_the_years_1_to_9999_can_be_formatted(tmp_path: Path, time: int) -> None:
    """Both limits included."""
    bindings = lookup(tmp_path, BINDINGS, [binding(1, begin=time)])
    (text,) = letters_of_bindings(events_table({"time": time, "event": "{}", "bindings": [0]}), bindings)[
        "why"
    ].to_pylist()
    assert text in (
        "cam has been bound since 0001-01-01T00:00:00Z",
        "cam has been bound since 9999-12-31T23:59:59.999999Z",
    )


def test_without_matches_there_are_no_letters(tmp_path: Path) -> None:
    """With and without events."""
    for events in (events_table(), events_table({"time": 5})):
        assert letters_of_matches(events, lookup(tmp_path, SUBSCRIPTIONS)).equals(PENDING_SCHEMA.empty_table())
        assert letters_of_bindings(events, lookup(tmp_path, BINDINGS)).equals(PENDING_SCHEMA.empty_table())
        assert letters_of_initial_bindings([], events, lookup(tmp_path, SOURCES)).equals(PENDING_SCHEMA.empty_table())


def event_json(name: str, level: float | None = None) -> str:
    """The JSON of an event."""
    return orjson.dumps({"id": name, "readings": {} if level is None else {"level": level}}).decode()


def known(name: str, seq: int, level: float | None = None, source: str = "cam", **more: Any) -> dict[str, Any]:
    """A row of SOURCES with the newest event of earlier batches."""
    plain = {
        "node": "local",
        "source": source,
        "seq": seq,
        "time": 1,
        "event": event_json(name, level),
        "attributes": None,
    }
    return {**plain, **more}


def initial_events(
    folder: Path, initial: Sequence[dict[str, Any]], fresh: pa.Table, *rows: Mapping[str, Any]
) -> list[Any]:
    """(event id, subscription) of the letters of initial bindings."""
    letters = letters_of_initial_bindings(
        initial, fresh, lookup(folder, SOURCES, rows) if rows else lookup(folder, SOURCES)
    )
    return [(orjson.loads(letter["event"])["id"], letter["subscription"]) for letter in letters.to_pylist()]


def test_an_initial_binding_sends_the_last_known_event(tmp_path: Path) -> None:
    """With the offset of the binding and the time of the event."""
    first = binding(8, on="@level > 1", every=9, subscriber="bob")
    letters = letters_of_initial_bindings(
        [first], events_table(), lookup(tmp_path, SOURCES, [known("old", 4, 3.0, time=5)])
    )
    assert letters.schema.equals(PENDING_SCHEMA)
    assert [tuple(letter.values()) for letter in letters.to_pylist()] == [
        ("local", 8, 5, event_json("old", 3.0), None, "local", "bob", "b8", 9,
         "the last event of cam when it was bound at 2023-11-14T22:13:20Z, and @level > 1", False),
    ]  # fmt: skip


def test_the_event_with_the_highest_number_is_the_last_known(tmp_path: Path) -> None:
    """Of earlier batches or of this one, in whatever order they came."""
    fresh = events_table(
        {"time": 1, "seq": 7, "event": event_json("seven")}, {"time": 1, "seq": 6, "event": event_json("six")}
    )
    assert initial_events(tmp_path, [binding(8)], fresh, known("five", 5)) == [("seven", "b8")]
    assert initial_events(tmp_path, [binding(8)], fresh, known("nine", 9)) == [("nine", "b8")]


def test_an_event_after_the_binding_was_not_known(tmp_path: Path) -> None:
    """It matches the binding itself, or nothing."""
    fresh = events_table(
        {"time": 1, "seq": 5, "event": event_json("a")},
        {"time": 1, "seq": 6, "event": event_json("b")},
        {"time": 1, "seq": 7, "event": event_json("c")},
    )
    assert initial_events(tmp_path, [binding(3)], fresh.take([0, 1]), known("old", 1)) == [("b", "b3")]
    moved = fresh.set_column(1, "offset", pa.array([1, 3, 4]))
    assert initial_events(tmp_path, [binding(2)], moved, known("old", 1)) == [("a", "b2")]
    assert initial_events(tmp_path, [binding(0)], moved, known("old", 1)) == [("old", "b0")]


def test_only_events_of_the_same_source_count(tmp_path: Path) -> None:
    """Not those of another source, or of one with the same name at another node."""
    fresh = events_table(
        {"time": 1, "seq": 7, "event": event_json("car"), "entity": "car"},
        {"time": 1, "seq": 7, "event": event_json("s"), "node": "south", "home": "south"},
    )
    others = [known("bus", 9, source="bus"), known("south", 9, node="south")]
    assert initial_events(tmp_path, [binding(8)], fresh, *others) == []
    assert initial_events(tmp_path, [binding(8), binding(9, source="car"), binding(10)], fresh, known("cam", 1)) == [
        ("cam", "b8"), ("car", "b9"), ("cam", "b10"),
    ]  # fmt: skip


def test_without_a_known_event_nothing_is_sent(tmp_path: Path) -> None:
    """The source has no events, or only their numbers are known."""
    assert initial_events(tmp_path, [binding(8)], events_table()) == []
    numbers = {"node": "local", "source": "cam", "seen": "1-7"}
    assert initial_events(tmp_path, [binding(8)], events_table({"time": 1, "seq": 5}), numbers) == []


@pytest.mark.parametrize(
    ("on", "level", "attributes", "is_sent"),
    [
        ("@level > 1", 2.0, None, True),
        ("@level > 1", 1.0, None, False),
        ("@level > 1", None, None, False),
        ("@ > 1", 2.0, '{"context":"level"}', True),
        ("@ > 1", 2.0, '{"context":"heat"}', False),
        ("@ > 1", 2.0, '{"context":7}', False),
        ("@ > 1", 2.0, "{no", False),
        ("@ > 1", 2.0, None, False),
        ("not @ > 1", 2.0, None, True),
    ],
)
def test_the_last_known_event_must_satisfy_the_condition(
    tmp_path: Path, on: str, level: float | None, attributes: str | None, is_sent: bool
) -> None:
    """With the attributes that its source had then."""
    first, event = binding(8, on=on), {"time": 1, "seq": 5, "event": event_json("e", level), "attributes": attributes}
    assert bool(initial_events(tmp_path, [first], events_table(event))) == is_sent
    assert (
        bool(initial_events(tmp_path, [first], events_table(), known("e", 5, level, attributes=attributes))) == is_sent
    )


def test_an_older_event_is_not_sent_instead(tmp_path: Path) -> None:
    """If the newest does not satisfy the condition."""
    fresh = events_table({"time": 1, "seq": 6, "event": event_json("new", 0.0)})
    assert initial_events(tmp_path, [binding(8, on="@level > 1")], fresh, known("old", 5, 2.0)) == []


@given(
    seqs=st.lists(st.tuples(st.integers(1, 9), st.sampled_from(["cam", "car"])), max_size=8, unique_by=lambda e: e[0]),
    before=st.none() | st.just(10) | st.just(0),
    since=st.integers(1, 9),
)
def test_the_last_known_event_equals_a_plain_loop(seqs: list[tuple[int, str]], before: int | None, since: int) -> None:
    """Event by event, up to the binding; a higher number replaces a lower one."""
    newest = None if before is None else ("old", before)
    for number, (seq, source) in enumerate(seqs, 1):
        if source == "cam" and number < since and (newest is None or seq > newest[1]):
            newest = (f"e{number}", seq)
    events = ({"seq": q, "time": 1, "entity": s, "event": event_json(f"e{n}")} for n, (q, s) in enumerate(seqs, 1))
    fresh = events_table(*events)
    with tempfile.TemporaryDirectory() as folder:
        rows = [] if before is None else [known("old", before)]
        found = initial_events(Path(folder), [binding(since)], fresh, *rows)
    assert found == ([] if newest is None else [(newest[0], f"b{since}")])
