"""The entities that a node knew: as a snapshot and the records after it say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.journal.records import CHANGED, FORGOTTEN, LEFT, REGISTERED, SNAPSHOT, SNAPSHOT_END, TRACK
from roamcast.journal.tracking import EntityBody
from roamcast.lacl.conditions import Attribute
from roamcast.model import Position

__all__ = ["Call", "Entities", "EntityState", "apply", "calls", "entities_of", "fold"]

Row: TypeAlias = dict[str, Any]
_COLUMNS: Final = ("offset", "batch", "written", "kind", "entity", "seq", "time", "x", "y", "body")
_ABOUT_ENTITIES: Final = frozenset({REGISTERED, CHANGED, TRACK, FORGOTTEN, LEFT})


@dataclass(frozen=True, slots=True)
class EntityState:
    """A source or subscriber."""

    kind: Literal["source", "subscriber"]
    attributes: Mapping[str, Attribute]
    position: Position | None = None


Entities: TypeAlias = dict[str, EntityState]


class Call(NamedTuple):
    """Records that took effect together, at the time `at` of the node. `offset` is that of the last.

    `snapshot`: they are all entities of the node.
    """

    offset: int
    batch: int
    written: int
    at: int
    rows: list[Row]
    snapshot: bool = False


def entities_of(rows: pa.Table) -> Entities:
    """The entities of a snapshot."""
    entities: Entities = {}
    registered = rows.filter(pc.equal(rows["kind"], REGISTERED))
    for row in _rows(registered):
        apply(entities, row)
    return entities


def fold(entities: Entities, changes: pa.Table) -> None:
    """Apply all these records. Of the tracks of an entity only the last matters, so there may be very many."""
    is_track = pc.equal(changes["kind"], TRACK)
    others = changes.filter(pc.invert(is_track))
    tracks = changes.filter(is_track)
    last = dict.fromkeys(entities, 0)  # the offset from which on tracks count
    for call in calls(others):
        if call.snapshot:
            entities.clear()
        for row in call.rows:
            apply(entities, row)
            if row["kind"] != CHANGED:
                last[row["entity"]] = call.offset
    if not tracks.num_rows:
        return
    names = tracks["entity"].combine_chunks().dictionary_encode()
    newest = np.full(len(names.dictionary), -1)
    np.maximum.at(newest, names.indices.to_numpy(), np.arange(tracks.num_rows))
    for row in _rows(tracks.take(pa.array(newest))):
        if row["entity"] in entities and row["offset"] > last[row["entity"]]:
            apply(entities, row)


def apply(entities: Entities, row: Row) -> None:
    """Apply one record about an entity."""
    name, kind = row["entity"], row["kind"]
    known = entities.get(name)
    if kind == REGISTERED:
        body = EntityBody.from_json(row["body"])
        position = _position(row) or (known.position if known else None)
        entities[name] = EntityState(body.kind, body.attributes, position)
    elif kind == LEFT:
        entities.pop(name, None)
    elif known is None:
        return
    elif kind == CHANGED:
        entities[name] = replace(known, attributes=EntityBody.from_json(row["body"]).attributes)
    elif kind == TRACK:
        entities[name] = replace(known, position=_position(row))
    elif kind == FORGOTTEN:
        entities[name] = replace(known, position=None)


def calls(changes: pa.Table) -> Iterator[Call]:
    """Records in the order of their offsets, grouped as they took effect."""
    for at, group in groupby(_rows(changes), itemgetter("seq")):
        members = list(group)
        kinds = {row["kind"] for row in members}
        is_snapshot, last = SNAPSHOT in kinds, members[-1]
        if is_snapshot and SNAPSHOT_END not in kinds:
            continue
        about = [row for row in members if row["kind"] in _ABOUT_ENTITIES]
        if about or is_snapshot:
            yield Call(last["offset"], last["batch"], last["written"], at, about, is_snapshot)


def _rows(records: pa.Table) -> list[Row]:
    times = {name: records[name].cast(pa.int64()) for name in ("time", "written")}
    return pa.table({name: times.get(name, records[name]) for name in _COLUMNS}).to_pylist()  # type: ignore[no-any-return]


def _position(row: Row) -> Position | None:
    return None if row["x"] is None else Position(row["entity"], row["x"], row["y"], row["time"])
