"""Drafts: letters before they have numbers. Who gets which event under which subscription, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.lacl import holds
from roamcast.model import global_name
from roamcast.pipeline.schemas import SOURCES
from roamcast.pipeline.state.lookups import Lookups
from roamcast.pipeline.state.subscription_spec import why_matched
from roamcast.pipeline.tasks.event_columns import CONTEXT, attributes_of, on_of

__all__ = ["DRAFTS_SCHEMA", "Notified", "bound", "first_readings", "matched", "thinned"]

# (node, offset) is the place of the event, or of the binding that brought an earlier event.
DRAFTS_SCHEMA: Final = pa.schema(
    [
        pa.field("node", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("time", pa.int64()),
        pa.field("event", pa.string()),
        pa.field("office", pa.string()),
        pa.field("receiver", pa.string()),
        pa.field("subscription", pa.string()),
        pa.field("every", pa.int64()),
        pa.field("why", pa.string()),
    ]
)

Binding: TypeAlias = Mapping[str, Any]
Notified: TypeAlias = Mapping[tuple[str, str], int]
"""By (office, subscription): the time of the last event that it was notified of."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def matched(events: pa.Table, subscriptions: Lookups) -> pa.Table:
    """The drafts of plan match. `events` has SIFTED_SCHEMA; its lists are rows of `subscriptions`."""
    lists = events["subscriptions"].combine_chunks()
    distinct = pc.list_flatten(lists).dictionary_encode()
    rows = subscriptions.take(distinct.dictionary.to_numpy())
    whys = pa.array([why_matched(row) for row in rows.to_pylist()], pa.string())
    return _drafts(events, lists, rows.take(distinct.indices), whys.take(distinct.indices))


def bound(events: pa.Table, bindings: Lookups) -> pa.Table:
    """The drafts of plan bind. `events` has SIFTED_SCHEMA; its lists are rows of `bindings`."""
    lists = events["bindings"].combine_chunks()
    rows = bindings.take(pc.list_flatten(lists).to_numpy())
    facts = (rows[name].to_pylist() for name in ("node", "home", "source", "begin", "on"))
    whys = [
        f"{_named(source, home, node)} is bound since {_iso(begin)}{_and(on)}"
        for node, home, source, begin, on in zip(*facts, strict=True)
    ]
    return _drafts(events, lists, rows, pa.array(whys, pa.string()))


def first_readings(initial: Sequence[Binding], fresh: pa.Table, sources: Lookups) -> pa.Table:
    """The drafts of what was known of a source when a subscription first got it.

    `initial` are the bindings; `sources` tells the newest events of earlier batches, and `fresh` (SIFTED_SCHEMA) those
    of this one.
    """
    drafts = []
    for binding, newest in zip(initial, _newest_before(initial, fresh, sources), strict=True):
        if newest is None or not _satisfies(newest, binding["on"]):
            continue
        drafts.append(
            {
                "node": binding["node"], "offset": binding["since"], "time": newest["time"], "event": newest["event"],
                "office": binding["node"], "receiver": binding["subscriber"], "subscription": binding["id"],
                "every": binding["every"],
                "why": f"the last of {_named(binding['source'], binding['home'], binding['node'])} when it was bound, "
                f"at {_iso(binding['begin'])}{_and(binding['on'])}",
            }
        )  # fmt: skip
    return pa.Table.from_pylist(drafts, DRAFTS_SCHEMA)


def _newest_before(initial: Sequence[Binding], fresh: pa.Table, sources: Lookups) -> list[Mapping[str, Any] | None]:
    """For each binding the newest event of its source that was there before."""
    if not initial:
        return []
    names = [pa.array([binding[column] for binding in initial], pa.string()) for column in ("home", "source")]
    found = sources.find(SOURCES.keys, names)
    known: list[list[Mapping[str, Any]]] = [[] for _ in initial]
    earlier = sources.take(found.row, ("seq", "time", "event", "attributes")).to_pylist()
    for binding, row in zip(found.key.tolist(), earlier, strict=True):
        known[binding].append(row)
    told = fresh.filter(pc.is_valid(fresh["event"])).select(
        ["node", "home", "entity", "offset", "seq", "time", "event", "attributes"]
    )
    here: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in told.to_pylist():
        here.setdefault((row["home"], row["entity"]), []).append(row)
    for rows, binding in zip(known, initial, strict=True):
        of_source = here.get((binding["home"], binding["source"]), [])
        rows += (row for row in of_source if _was_before(row, binding))
    return [
        max((row for row in rows if row["event"] is not None), key=lambda row: row["seq"], default=None)
        for rows in known
    ]


def _was_before(event: Mapping[str, Any], binding: Binding) -> bool:
    """In the journal, or, if the two are in different ones, by time."""
    if event["node"] == binding["node"]:
        return bool(event["offset"] < binding["since"])
    return bool(event["time"] < binding["begin"])


def _named(source: str, home: str, node: str) -> str:
    return source if home == node else global_name(source, home)


def _satisfies(newest: Mapping[str, Any], on: str | None) -> bool:
    if on is None:
        return True
    context = attributes_of(newest["attributes"]).get(CONTEXT)
    readings = orjson.loads(newest["event"])["readings"]
    return holds(on_of(on), readings, context=context if isinstance(context, str) else None)


def thinned(
    drafts: pa.Table, notified: Notified, removed: Mapping[tuple[str, str], int]
) -> tuple[pa.Table, Mapping[tuple[str, str], int | None]]:
    """Of the drafts under `Every` those that are a period or more from the last; and what is to be remembered.

    Time is that of the events. `drafts` come in the order in which they will be numbered; `removed` says at which place
    of its node a subscription was removed: what has its name from there on begins anew.
    """
    limited = np.flatnonzero(pc.is_valid(drafts["every"]).to_numpy())
    rows = drafts.take(pa.array(limited))
    columns = (rows[name].to_pylist() for name in ("office", "subscription", "node", "offset", "time", "every"))
    keep = np.ones(drafts.num_rows, np.bool_)
    last: dict[tuple[str, str], int | None] = dict(notified)
    anew: set[tuple[str, str]] = set()
    for row, office, subscription, node, offset, time, every in zip(limited.tolist(), *columns, strict=True):
        name = office, subscription
        if name in removed and name not in anew and (node != office or offset > removed[name]):
            anew.add(name)
            last[name] = None
        before = last.get(name)
        if before is not None and abs(time - before) < every:
            keep[row] = False
        else:
            last[name] = time
    last |= dict.fromkeys((name for name in removed if name in last and name not in anew), None)
    changed = {name: time for name, time in last.items() if time != notified.get(name)}
    return drafts.filter(pa.array(keep)), changed


def _drafts(events: pa.Table, lists: pa.ListArray, rows: pa.Table, whys: pa.Array) -> pa.Table:
    """One for each element of `lists`: `rows` and `whys` are what they stand for."""
    parents = events.select(["node", "offset", "time", "event"]).take(pc.list_parent_indices(lists))
    columns = [*parents.columns, rows["node"], rows["subscriber"], rows["id"], rows["every"], whys]
    return pa.table(columns, schema=DRAFTS_SCHEMA)


def _and(on: str | None) -> str:
    return "" if on is None else f", and {on}"


def _iso(micros: int) -> str:
    return (_EPOCH + timedelta(microseconds=micros)).isoformat()
