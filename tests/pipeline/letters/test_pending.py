"""Drafts: who gets which event and why, what comes with a first binding, what `Every` leaves out."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from profiles import thorough
from worlds import NOON

from roamcast.journal.bodies import SubscriptionBody
from roamcast.lacl import check, parse
from roamcast.model import Box
from roamcast.pipeline.letters.pending import DRAFTS_SCHEMA, Notified, bound, first_readings, matched, thinned
from roamcast.pipeline.schemas import BINDINGS, SIFTED_SCHEMA, SOURCES, SUBSCRIPTIONS
from roamcast.pipeline.state.lookups import Lookups
from roamcast.pipeline.state.parts import PartFolder
from roamcast.pipeline.state.subscription_spec import asked_of
from roamcast.places import Places
from roamcast.space import GEOGRAPHIC


def sifted(*rows: Mapping[str, Any]) -> pa.Table:
    """Events as the executors tell of them, the n-th at offset n unless it says otherwise."""
    plain = {"node": "local", "home": "local", "entity": "cam", "whole": True, "subscriptions": [], "bindings": []}
    return pa.Table.from_pylist([{**plain, "offset": n, **row} for n, row in enumerate(rows, 1)], SIFTED_SCHEMA)


def wish(number: int, body: SubscriptionBody, **more: Any) -> dict[str, Any]:
    """A row of SUBSCRIPTIONS."""
    asked = {**asked_of(body.to_json())._asdict(), "terms": list(body.terms)}
    return {"node": "local", "since": number, "id": f"s{number}", "subscriber": "ann", **asked, **more}


def why(body: SubscriptionBody) -> str:
    """What is said of an event that a subscription matched."""
    subscriptions = pa.Table.from_pylist([wish(1, body)], SUBSCRIPTIONS.schema)
    (text,) = matched(sifted({"time": 5, "event": "{}", "subscriptions": [0]}), subscriptions)["why"].to_pylist()
    return str(text)


@pytest.mark.parametrize(
    ("box", "terms", "said"),
    [
        (Box(0, -1.5, 2, 3), (), "in box(0, -1.5, 2, 3)"),
        (None, ("fire",), 'has "fire"'),
        (None, ("fire", 'a "b"'), 'has "fire" and "a \\"b\\""'),
        (Box(170, 0, -170, 1), ("fire",), 'in box(170, 0, -170, 1), has "fire"'),
        (None, (), ""),
    ],
)
def test_box_and_terms_are_why(box: Box | None, terms: tuple[str, ...], said: str) -> None:
    """As they were asked for."""
    assert why(SubscriptionBody(box, terms)) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("&location in circle(1, 2, 30)", "in circle(1, 2, 30)"),
        ('&location in within("p") and &terms has ("fire")', 'in within("p"), has "fire"'),
        ("&location in box(0, 0, 1, 1) On @level > 1", "in box(0, 0, 1, 1), @level > 1"),
        ("&location in box(0, 0, 1, 1) and &owner = bob", "in box(0, 0, 1, 1), &owner = bob"),
        ('&terms has ("fire") and &owner = bob Every 5 s',
         'has "fire", &owner = bob'),
        ('&terms has ("a") or &terms has ("b")', '&terms has ("a") or &terms has ("b")'),
        ('&location in box(0, 0, 1, 1) and &owner = "x."', 'in box(0, 0, 1, 1), &owner = x.'),
    ],
)  # fmt: skip
def test_the_query_is_why(text: str, said: str) -> None:
    """What it asks of the event, without what it says of when to listen."""
    query = check(parse(f"Select all() Where {text}"))
    body = SubscriptionBody.of(query, Places({"p": shapely.box(0, 0, 1, 1)}), GEOGRAPHIC)
    assert body.query is not None
    assert why(body) == said


def test_a_match_is_a_draft() -> None:
    """For each event and subscription that it matched, in that order, with what both tell of it."""
    rows = [
        wish(4, SubscriptionBody(None, ("a",))),
        wish(7, SubscriptionBody(None, ("b",), every=9), node="south", subscriber="bob"),
    ]
    events = sifted(
        {"time": 5, "event": '{"e":1}', "subscriptions": [1, 0]},
        {"time": 6},
        {"time": 7, "event": '{"e":3}', "subscriptions": [1], "node": "north"},
    )
    drafts = matched(events, pa.Table.from_pylist(rows, SUBSCRIPTIONS.schema))
    assert drafts.schema.equals(DRAFTS_SCHEMA)
    assert [tuple(draft.values()) for draft in drafts.to_pylist()] == [
        ("local", 1, 5, '{"e":1}', "south", "bob", "s7", 9, 'has "b"'),
        ("local", 1, 5, '{"e":1}', "local", "ann", "s4", None, 'has "a"'),
        ("north", 3, 7, '{"e":3}', "south", "bob", "s7", 9, 'has "b"'),
    ]


def layers(folder: Path, table: Any, *parts: Sequence[Mapping[str, Any]]) -> Lookups:
    tables = [pa.Table.from_pylist(list(rows), table.schema) for rows in parts]
    return Lookups(folder, table.name, [PartFolder(folder).write(table, rows) for rows in tables])


def bond(since: int, **more: Any) -> dict[str, Any]:
    """A row of BINDINGS."""
    plain = {
        "node": "local", "since": since, "id": f"b{since}", "subscriber": "ann", "home": "local", "source": "cam",
        "begin": NOON,
    }  # fmt: skip
    return {**plain, "on": None, "every": None, **more}


def test_a_bound_event_is_a_draft(tmp_path: Path) -> None:
    """It names the source, since when it is bound, and what it had to satisfy."""
    bindings = layers(tmp_path, BINDINGS, [bond(1)], [bond(2, subscriber="bob", on="@level > 1", every=9)])
    rows = bindings.find(("node", "since"), [pa.array(["local"] * 2), pa.array([1, 2])]).row.tolist()
    drafts = bound(sifted({"time": 5, "event": "{}", "bindings": rows}, {"time": 6}), bindings)
    assert drafts.schema.equals(DRAFTS_SCHEMA)
    since = "cam is bound since 2023-11-14T22:13:20+00:00"
    assert [tuple(draft.values()) for draft in drafts.to_pylist()] == [
        ("local", 1, 5, "{}", "local", "ann", "b1", None, since),
        ("local", 1, 5, "{}", "local", "bob", "b2", 9, f"{since}, and @level > 1"),
    ]


@pytest.mark.parametrize("time", [-62_135_596_800_000_000, 253_402_300_799_999_999])
def test_any_time_that_has_a_date_can_be_told(tmp_path: Path, time: int) -> None:
    """The first moment of the year 1, and the last of the year 9999."""
    bindings = layers(tmp_path, BINDINGS, [bond(1, begin=time)])
    (text,) = bound(sifted({"time": time, "event": "{}", "bindings": [0]}), bindings)["why"].to_pylist()
    assert text in (
        "cam is bound since 0001-01-01T00:00:00+00:00",
        "cam is bound since 9999-12-31T23:59:59.999999+00:00",
    )


def test_nothing_matched_is_no_draft(tmp_path: Path) -> None:
    """With events, and without."""
    for events in (sifted(), sifted({"time": 5})):
        assert matched(events, SUBSCRIPTIONS.schema.empty_table()).equals(DRAFTS_SCHEMA.empty_table())
        assert bound(events, layers(tmp_path, BINDINGS)).equals(DRAFTS_SCHEMA.empty_table())
        assert first_readings([], events, layers(tmp_path, SOURCES)).equals(DRAFTS_SCHEMA.empty_table())


def told(name: str, level: float | None = None) -> str:
    """An event's JSON."""
    return orjson.dumps({"id": name, "readings": {} if level is None else {"level": level}}).decode()


def known(name: str, seq: int, level: float | None = None, source: str = "cam", **more: Any) -> dict[str, Any]:
    """A row of SOURCES: the newest event of earlier batches."""
    plain = {"node": "local", "source": source, "seq": seq, "time": 1, "event": told(name, level), "attributes": None}
    return {**plain, **more}


def firsts(folder: Path, initial: Sequence[dict[str, Any]], fresh: pa.Table, *rows: Mapping[str, Any]) -> list[Any]:
    """(id of the event, subscription) of what comes with first bindings."""
    drafts = first_readings(initial, fresh, layers(folder, SOURCES, rows) if rows else layers(folder, SOURCES))
    return [(orjson.loads(draft["event"])["id"], draft["subscription"]) for draft in drafts.to_pylist()]


def test_what_was_known_comes_with_a_first_binding(tmp_path: Path) -> None:
    """At the place of the binding, with the time of the event, and saying so."""
    first = bond(8, on="@level > 1", every=9, subscriber="bob")
    drafts = first_readings([first], sifted(), layers(tmp_path, SOURCES, [known("old", 4, 3.0, time=5)]))
    assert drafts.schema.equals(DRAFTS_SCHEMA)
    assert [tuple(draft.values()) for draft in drafts.to_pylist()] == [
        ("local", 8, 5, told("old", 3.0), "local", "bob", "b8", 9,
         "the last of cam when it was bound, at 2023-11-14T22:13:20+00:00, and @level > 1"),
    ]  # fmt: skip


def test_the_one_with_the_highest_number_is_what_was_known(tmp_path: Path) -> None:
    """Of earlier batches or of this one, whatever order they came in."""
    fresh = sifted({"time": 1, "seq": 7, "event": told("seven")}, {"time": 1, "seq": 6, "event": told("six")})
    assert firsts(tmp_path, [bond(8)], fresh, known("five", 5)) == [("seven", "b8")]
    assert firsts(tmp_path, [bond(8)], fresh, known("nine", 9)) == [("nine", "b8")]


def test_what_was_journalled_later_was_not_known(tmp_path: Path) -> None:
    """It comes by the binding itself, or not at all."""
    fresh = sifted(
        {"time": 1, "seq": 5, "event": told("a")},
        {"time": 1, "seq": 6, "event": told("b")},
        {"time": 1, "seq": 7, "event": told("c")},
    )
    assert firsts(tmp_path, [bond(3)], fresh.take([0, 1]), known("old", 1)) == [("b", "b3")]
    moved = fresh.set_column(1, "offset", pa.array([1, 3, 4]))
    assert firsts(tmp_path, [bond(2)], moved, known("old", 1)) == [("a", "b2")]
    assert firsts(tmp_path, [bond(0)], moved, known("old", 1)) == [("old", "b0")]


def test_only_its_own_source_tells(tmp_path: Path) -> None:
    """Neither another source, nor one of the same name at another node."""
    fresh = sifted(
        {"time": 1, "seq": 7, "event": told("car"), "entity": "car"},
        {"time": 1, "seq": 7, "event": told("s"), "node": "south", "home": "south"},
    )
    others = [known("bus", 9, source="bus"), known("south", 9, node="south")]
    assert firsts(tmp_path, [bond(8)], fresh, *others) == []
    assert firsts(tmp_path, [bond(8), bond(9, source="car"), bond(10)], fresh, known("cam", 1)) == [
        ("cam", "b8"), ("car", "b9"), ("cam", "b10"),
    ]  # fmt: skip


def test_where_nothing_is_known_nothing_comes(tmp_path: Path) -> None:
    """A source that was never heard, or of which only numbers are known."""
    assert firsts(tmp_path, [bond(8)], sifted()) == []
    numbers = {"node": "local", "source": "cam", "seen": "1-7"}
    assert firsts(tmp_path, [bond(8)], sifted({"time": 1, "seq": 5}), numbers) == []


@pytest.mark.parametrize(
    ("on", "level", "attributes", "comes"),
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
def test_what_was_known_must_satisfy_the_condition(
    tmp_path: Path, on: str, level: float | None, attributes: str | None, comes: bool
) -> None:
    """With the attributes that its source had then, of an earlier batch or of this one."""
    first, event = bond(8, on=on), {"time": 1, "seq": 5, "event": told("e", level), "attributes": attributes}
    assert bool(firsts(tmp_path, [first], sifted(event))) == comes
    assert bool(firsts(tmp_path, [first], sifted(), known("e", 5, level, attributes=attributes))) == comes


def test_if_the_newest_does_not_satisfy_nothing_comes(tmp_path: Path) -> None:
    """An older one is not what is known of the source now."""
    fresh = sifted({"time": 1, "seq": 6, "event": told("new", 0.0)})
    assert firsts(tmp_path, [bond(8, on="@level > 1")], fresh, known("old", 5, 2.0)) == []


def drafts_of(rows: Sequence[tuple[str, str, int, int | None]]) -> pa.Table:
    """Drafts, each (office, subscription, time, every), in the order in which they are numbered."""
    names = ("office", "subscription", "time", "every")
    plain = [{"node": "local", "offset": n, **dict(zip(names, row, strict=True))} for n, row in enumerate(rows)]
    return pa.Table.from_pylist(plain, DRAFTS_SCHEMA)


def test_one_in_each_period_is_kept() -> None:
    """By the time of the events: from one that is kept to the next at least the period passes."""
    rows = drafts_of([("local", "s1", time, 10) for time in (100, 109, 110, 119, 135, 140)])
    kept, notified = thinned(rows, {}, {})
    assert kept["time"].to_pylist() == [100, 110, 135]
    assert notified == {("local", "s1"): 135}


def test_what_was_notified_before_counts() -> None:
    """As far as it is known; what is not notified now need not be remembered anew."""
    rows = drafts_of([("local", "s1", 99, 10), ("local", "s2", 99, 10), ("south", "s1", 99, 10)])
    kept, notified = thinned(rows, {("local", "s1"): 90, ("local", "s2"): 89}, {})
    assert kept["offset"].to_pylist() == [1, 2]
    assert notified == {("local", "s2"): 99, ("south", "s1"): 99}


def test_an_event_from_the_future_mutes_nothing() -> None:
    """A period goes both ways: what happened long before the last one is told, too."""
    kept, notified = thinned(drafts_of([("local", "s1", time, 10) for time in (900, 100, 105, 891)]), {}, {})
    assert (kept["time"].to_pylist(), notified) == ([900, 100, 891], {("local", "s1"): 891})


def test_after_a_removal_a_period_begins_anew() -> None:
    """From its place on, for events of its own node; and what is removed and not heard of again is forgotten."""
    rows = drafts_of([("local", "s1", 100 + n, 10) for n in range(4)])
    before = {("local", "s1"): 95, ("local", "s2"): 50}
    kept, notified = thinned(rows, before, {("local", "s1"): 1, ("local", "s2"): 1, ("local", "s3"): 1})
    assert kept["offset"].to_pylist() == [2]
    assert notified == {("local", "s1"): 102, ("local", "s2"): None}


def test_without_a_period_all_are_kept() -> None:
    """Between others that have one, and alone."""
    free, limited = ("local", "s0", 1, None), ("local", "s1", 1, 10)
    rows = drafts_of([free, limited, free, limited])
    assert thinned(rows, {}, {})[0]["offset"].to_pylist() == [0, 1, 2]
    alone = drafts_of([free] * 2)
    assert thinned(alone, {("local", "s0"): 99}, {}) == (alone, {})
    assert thinned(drafts_of([]), {}, {}) == (DRAFTS_SCHEMA.empty_table(), {})


_names = st.tuples(st.sampled_from(["local", "south"]), st.sampled_from(["s1", "s2"]))
_periods = {("local", "s1"): 5, ("local", "s2"): None, ("south", "s1"): 1, ("south", "s2"): 12}


@thorough()
@given(
    rows=st.lists(st.tuples(_names, st.integers(0, 40)), max_size=20),
    before=st.dictionaries(_names, st.integers(0, 30)),
)
def test_thinning_equals_a_plain_loop(rows: list[tuple[tuple[str, str], int]], before: Notified) -> None:
    """One draft after the other, each told or not by what was told before it."""
    memory, expected = dict(before), []
    for number, (name, time) in enumerate(rows):
        every = _periods[name]
        if every is None or name not in memory or abs(time - memory[name]) >= every:
            expected.append(number)
            if every is not None:
                memory[name] = time
    kept, changed = thinned(drafts_of([(*name, time, _periods[name]) for name, time in rows]), before, {})
    assert kept["offset"].to_pylist() == expected
    assert {**before, **changed} == memory


@given(
    seqs=st.lists(st.tuples(st.integers(1, 9), st.sampled_from(["cam", "car"])), max_size=8, unique_by=lambda e: e[0]),
    before=st.none() | st.just(10) | st.just(0),
    since=st.integers(1, 9),
)
def test_what_is_known_equals_a_plain_loop(seqs: list[tuple[int, str]], before: int | None, since: int) -> None:
    """One event after the other, up to the binding; a later one replaces it if its number is higher."""
    newest = None if before is None else ("old", before)
    for number, (seq, source) in enumerate(seqs, 1):
        if source == "cam" and number < since and (newest is None or seq > newest[1]):
            newest = (f"e{number}", seq)
    events = ({"seq": q, "time": 1, "entity": s, "event": told(f"e{n}")} for n, (q, s) in enumerate(seqs, 1))
    fresh = sifted(*events)
    with tempfile.TemporaryDirectory() as folder:
        rows = [] if before is None else [known("old", before)]
        found = firsts(Path(folder), [bond(since)], fresh, *rows)
    assert found == ([] if newest is None else [(newest[0], f"b{since}")])
