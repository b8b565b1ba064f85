"""Tracking records: what a node was told of entities, for the archive. Nodes write them if the archive is switched on.

`registered`, `changed`, `track`, `forgotten` (its position is erased) and `left` are about an entity; `state` is the
new state of a subscription that is not always active, `history` a new one that also gets what it would have received
before. `seq` is the time at which the node applied it, by the node's clock: consecutive records with the same `seq`
took effect together. They come before the control records that follow from them. Sources of other nodes are named
`source@home`.

A *snapshot* says everything again: a record `snapshot`, one `registered` for each entity, one `state` for each
subscription that is not always active, and `snapshot_end`, all with the same `seq` and with no other control record in
between. What it does not name is gone. One without its end does not count. After `untracked` the node does not track
entities any more, until the next snapshot.

A crash of the node may repeat tracking records, at higher offsets and otherwise the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import orjson

from roamcast.errors import InputError

__all__ = ["EntityBody", "HistoryBody", "SnapshotBody", "StateBody"]


@dataclass(frozen=True, slots=True)
class EntityBody:
    """What an entity is, and all its attributes."""

    kind: Literal["source", "subscriber"]
    attributes: Mapping[str, str | float | bool]

    def to_json(self) -> str:
        return orjson.dumps({"kind": self.kind, "attributes": dict(self.attributes)}).decode()

    @classmethod
    def from_json(cls, text: str | None) -> Self:
        """Decode a body. Raises InputError if it is not one."""
        values = _values(text, "an entity", {"kind": str, "attributes": dict})
        if values["kind"] not in ("source", "subscriber"):
            raise InputError(f"unknown kind of entity {values['kind']!r}")
        return cls(**values)


@dataclass(frozen=True, slots=True)
class StateBody:
    """The state of a subscription, and why it receives nothing; None while it is active."""

    state: str
    why: str | None

    def to_json(self) -> str:
        return orjson.dumps({"state": self.state, "why": self.why}).decode()

    @classmethod
    def from_json(cls, text: str | None) -> Self:
        """Decode a body. Raises InputError if it is not one."""
        return cls(**_values(text, "a state", {"state": str, "why": (str, type(None))}))


@dataclass(frozen=True, slots=True)
class HistoryBody:
    """A new subscription, which also gets what it would have received in a period before: its query, and the period
    in microseconds.
    """

    lacl: str
    period: int

    def to_json(self) -> str:
        return orjson.dumps({"lacl": self.lacl, "period": self.period}).decode()

    @classmethod
    def from_json(cls, text: str | None) -> Self:
        """Decode a body. Raises InputError if it is not one."""
        return cls(**_values(text, "a history", {"lacl": str, "period": int}))


@dataclass(frozen=True, slots=True)
class SnapshotBody:
    """The space of the node, its places (GeoJSON; None without places), and how many entities follow."""

    space: str
    places: str | None
    entities: int

    def to_json(self) -> str:
        return orjson.dumps({"space": self.space, "places": self.places, "entities": self.entities}).decode()

    @classmethod
    def from_json(cls, text: str | None) -> Self:
        """Decode a body. Raises InputError if it is not one."""
        return cls(**_values(text, "a snapshot", {"space": str, "places": (str, type(None)), "entities": int}))


def _values(text: str | None, what: str, types: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
    try:
        values = orjson.loads(text or b"")
    except orjson.JSONDecodeError as error:
        raise InputError(f"the body of {what} is unreadable: {error}") from error
    if not isinstance(values, dict) or values.keys() != types.keys():
        raise InputError(f"the body of {what} needs {', '.join(types)}")
    for name, type_ in types.items():
        if not isinstance(values[name], type_):
            raise InputError(f"the body of {what} has an invalid {name}: {values[name]!r}")
    return values
