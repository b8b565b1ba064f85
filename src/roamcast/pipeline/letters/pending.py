"""Pending letters: which receiver gets which event under which subscription, and why. They have no numbers yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.journal.bodies import LINK, decode_condition
from roamcast.journal.records import FORWARDED, LAST_KNOWN
from roamcast.lacl import holds
from roamcast.model import global_name, iso
from roamcast.pipeline.letters.descriptions import DESCRIBED, describe_condition, describe_matches
from roamcast.pipeline.schemas import PENDING_SCHEMA, SOURCES, TEXT
from roamcast.pipeline.state.lookups import EndLimits, KeyLookup, TableLookup
from roamcast.pipeline.tasks.event_columns import CONTEXT, parse_attributes

__all__ = [
    "join_links", "letters_of_bindings", "letters_of_initial_bindings", "letters_of_last_known", "letters_of_matches",
]  # fmt: skip

BindingRow: TypeAlias = Mapping[str, Any]
EventRow: TypeAlias = Mapping[str, Any]

_LETTER_COLUMNS: Final = ("node", "subscriber", "id", "every")
_EVENT_COLUMNS: Final = ["node", "home", "entity", "offset", "seq", "time", "event", "attributes"]


def letters_of_matches(events: pa.Table, subscriptions: TableLookup) -> pa.Table:
    """The letters of plan match. `events` has MATCHED_SCHEMA; its lists are rows of `subscriptions`."""
    lists = events["subscriptions"].combine_chunks()
    distinct = pc.list_flatten(lists).dictionary_encode()
    rows = subscriptions.take(distinct.dictionary.to_numpy(), (*_LETTER_COLUMNS, *DESCRIBED))
    whys = describe_matches(rows).cast(TEXT)
    return _letters(events, lists, rows.take(distinct.indices), whys.take(distinct.indices))


def letters_of_bindings(events: pa.Table, bindings: TableLookup) -> pa.Table:
    """The letters of plan bind. `events` has MATCHED_SCHEMA; its lists are rows of `bindings`."""
    lists = events["bindings"].combine_chunks()
    rows = bindings.take(pc.list_flatten(lists).to_numpy())
    columns = (rows[name].to_pylist() for name in ("node", "home", "source", "begin", "on"))
    whys = [
        f"{_source_name(source, home, node)} has been bound since {iso(begin)}{_condition_suffix(on)}"
        for node, home, source, begin, on in zip(*columns, strict=True)
    ]
    return _letters(events, lists, rows, pa.array(whys, TEXT))


def letters_of_initial_bindings(initial: Sequence[BindingRow], fresh: pa.Table, sources: KeyLookup) -> pa.Table:
    """The letters with the last event that was known of a source when a subscription was first bound to it.

    `sources` has the newest events of earlier batches, `fresh` (MATCHED_SCHEMA) those of this one. The letter has the
    offset of the binding. Offsets of another node do not compare with it: a letter with an event from there is `first`.
    """
    letters = []
    for binding, newest in zip(initial, _newest_before(initial, fresh, sources), strict=True):
        if newest is None or not _satisfies(newest, binding["on"]):
            continue
        letters.append(
            {
                "node": binding["node"], "offset": binding["since"], "time": newest["time"], "event": newest["event"],
                "attributes": _attributes_for(binding, newest), "office": binding["node"],
                "receiver": binding["subscriber"],
                "subscription": binding["id"], "every": binding["every"], "why": _why_last_known(binding),
                "first": binding["home"] != binding["node"],
            }
        )  # fmt: skip
    return pa.Table.from_pylist(letters, PENDING_SCHEMA)


def letters_of_last_known(
    events: pa.Table, bindings: TableLookup, new: Sequence[BindingRow], sources: KeyLookup
) -> pa.Table:
    """The letters with the last event of a remote source, which its home sent because a subscription was bound to it.

    The event came after the binding, but was published before. `new` bindings of this batch get it as all others do.
    Of several events of a source only the newest counts, and that once.
    """
    if not events.num_rows:
        return PENDING_SCHEMA.empty_table()
    events = events.sort_by([("seq", "ascending"), ("node", "descending"), ("offset", "descending")])
    last = {
        pair: row for row, pair in enumerate(zip(events["home"].to_pylist(), events["entity"].to_pylist(), strict=True))
    }
    events = events.take(pa.array(sorted(last.values())))
    keys = [events["home"].combine_chunks(), events["entity"].combine_chunks()]
    known = sources.find(SOURCES.keys, keys)
    newest = np.full(events.num_rows, -1)
    np.maximum.at(newest, known.key, pc.fill_null(sources.take(known.row, ("seq",))["seq"], -1).to_numpy())
    pairs = bindings.find(("home", "source"), keys, EndLimits.live_only(events.num_rows))
    pairs = pairs.without(events["seq"].to_numpy() <= newest)
    rows = bindings.take(pairs.row)
    created = {(row["node"], row["since"]) for row in new}
    letters = []
    for event, binding in zip(events.take(pa.array(pairs.key)).to_pylist(), rows.to_pylist(), strict=True):
        is_waiting = binding["initial"] and event["time"] < binding["begin"]
        if is_waiting and (binding["node"], binding["since"]) not in created and _satisfies(event, binding["on"]):
            letters.append(
                {
                    **{name: event[name] for name in ("node", "offset", "time", "event")},
                    "attributes": _attributes_for(binding, event), "office": binding["node"],
                    "receiver": binding["subscriber"], "subscription": binding["id"], "every": binding["every"],
                    "why": _why_last_known(binding),
                }
            )  # fmt: skip
    return pa.Table.from_pylist(letters, PENDING_SCHEMA)


def _attributes_for(binding: BindingRow, event: EventRow) -> str | None:
    attributes: str | None = event["attributes"] if binding["subscriber"].startswith(LINK) else None
    return attributes


def _why_last_known(binding: BindingRow) -> str:
    source = _source_name(binding["source"], binding["home"], binding["node"])
    if binding["subscriber"].startswith(LINK):
        return LAST_KNOWN
    return f"the last event of {source} when it was bound at {iso(binding['begin'])}{_condition_suffix(binding['on'])}"


def join_links(pending: pa.Table) -> pa.Table:
    """Make one letter of all that bring an event to a link: what its subscriptions want is decided at the other end."""
    is_link = pc.starts_with(pending["receiver"], LINK)
    if not pc.any(is_link).as_py():
        return pending
    office = pc.binary_join_element_wise(pending["office"], pending["receiver"], "")
    is_last_known = pc.equal(pending["why"], LAST_KNOWN)
    columns = {
        "office": pc.if_else(is_link, office, pending["office"]),
        "subscription": pc.if_else(is_link, "", pending["subscription"]),
        "every": pc.if_else(is_link, None, pending["every"]),
        "why": pc.if_else(pc.and_(is_link, pc.invert(is_last_known)), pa.scalar(FORWARDED, TEXT), pending["why"]),
        "first": pc.if_else(is_link, None, pending["first"]),
    }
    return pa.table([columns.get(name, pending[name]) for name in PENDING_SCHEMA.names], schema=PENDING_SCHEMA)


def _newest_before(initial: Sequence[BindingRow], fresh: pa.Table, sources: KeyLookup) -> list[EventRow | None]:
    """For each binding the newest event of its source that came before it."""
    if not initial:
        return []
    keys = [pa.array([binding[column] for binding in initial], pa.string()) for column in ("home", "source")]
    pairs = sources.find(SOURCES.keys, keys)
    candidates: list[list[EventRow]] = [[] for _ in initial]
    earlier = sources.take(pairs.row, ("seq", "time", "event", "attributes")).to_pylist()
    for number, event in zip(pairs.key.tolist(), earlier, strict=True):
        candidates[number].append(event)
    by_source: dict[tuple[str, str], list[EventRow]] = {}
    of_sources = pc.and_(pc.is_in(fresh["home"], keys[0]), pc.is_in(fresh["entity"], keys[1]))
    for event in fresh.filter(pc.and_(of_sources, pc.is_valid(fresh["event"]))).select(_EVENT_COLUMNS).to_pylist():
        by_source.setdefault((event["home"], event["entity"]), []).append(event)
    for events, binding in zip(candidates, initial, strict=True):
        of_source = by_source.get((binding["home"], binding["source"]), [])
        events += (event for event in of_source if _is_before(event, binding))
    return [
        max((event for event in events if event["event"] is not None), key=lambda event: event["seq"], default=None)
        for events in candidates
    ]


def _is_before(event: EventRow, binding: BindingRow) -> bool:
    """By offset or, if the two are of different nodes, by time."""
    if event["node"] == binding["node"]:
        return bool(event["offset"] < binding["since"])
    return bool(event["time"] < binding["begin"])


def _satisfies(event: EventRow, on: str | None) -> bool:
    if on is None:
        return True
    context = parse_attributes(event["attributes"]).get(CONTEXT)
    readings = orjson.loads(event["event"])["readings"]
    return holds(decode_condition(on), readings, context=context if isinstance(context, str) else None)


def _letters(events: pa.Table, lists: pa.ListArray, rows: pa.Table, whys: pa.Array) -> pa.Table:
    """One letter for each element of `lists`. `rows` and `whys` belong to these elements.

    Only those to links have attributes: there may be many letters, and attributes may be long.
    """
    parents = pc.list_parent_indices(lists)
    of_links = pc.if_else(pc.starts_with(rows["subscriber"], LINK), parents, None)
    columns = events.select(["node", "offset", "time", "event"]).take(parents).columns
    columns += [events["attributes"].take(of_links), rows["node"], rows["subscriber"], rows["id"], rows["every"], whys]
    return pa.table([*columns, pa.nulls(len(whys), pa.bool_())], schema=PENDING_SCHEMA)


def _source_name(source: str, home: str, node: str) -> str:
    return source if home == node else global_name(source, home)


def _condition_suffix(on: str | None) -> str:
    return "" if on is None else f", and {describe_condition(on)}"
