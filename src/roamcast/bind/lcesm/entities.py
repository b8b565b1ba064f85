"""The entities a binder knows: ids, attributes and last positions."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from roamcast.bind.lcesm.messages import Attributes
from roamcast.bind.nearest.arrays import grow
from roamcast.bind.nearest.kernels.id_table import IdTable
from roamcast.bind.nearest.kernels.layout import Int32s, Rows
from roamcast.bind.nearest.kernels.moves import LAST_MOVE, accept_moves
from roamcast.bind.nearest.sources import NearestSources, checked_points
from roamcast.errors import InputError, NotFoundError
from roamcast.lacl.conditions import Attribute
from roamcast.model import BEFORE_ALL, Position
from roamcast.space import Floats, Space

__all__ = ["NO_MOVES", "BinderEntity", "EntityKind", "EntityMoves", "EntityTable", "NewEntities"]

EntityKind: TypeAlias = Literal["source", "subscriber"]

_NO_ATTRIBUTES: Final[Attributes] = {}


@dataclass(frozen=True, slots=True)
class BinderEntity:
    """A source or subscriber. `handle` is its row in arrays, here and in `NearestSources`."""

    id: str
    kind: EntityKind
    attributes: Attributes
    handle: int


@dataclass(frozen=True, slots=True)
class NewEntities:
    """New entities of one kind, in columns."""

    ids: list[str] = field(default_factory=list)
    attributes: list[Attributes] = field(default_factory=list)
    x: array[float] = field(default_factory=lambda: array("d"))
    y: array[float] = field(default_factory=lambda: array("d"))
    times: array[int] = field(default_factory=lambda: array("q"))

    def add(self, id: str, attributes: Attributes, position: Position | None) -> None:
        """Without a position the coordinates are arbitrary, and the time is BEFORE_ALL."""
        x, y, time = (0.0, 0.0, BEFORE_ALL) if position is None else (position.x, position.y, position.time)
        self.ids.append(id)
        self.attributes.append(attributes or _NO_ATTRIBUTES)
        self.x.append(x)
        self.y.append(y)
        self.times.append(time)


@dataclass(frozen=True, slots=True)
class EntityMoves:
    """New positions, one for each entity. `is_first` marks entities without a position before."""

    handles: Int32s
    x: Floats
    y: Floats
    is_first: npt.NDArray[np.bool_]


NO_MOVES: Final = EntityMoves(
    np.empty(0, np.int32), np.empty(0, np.float64), np.empty(0, np.float64), np.empty(0, np.bool_)
)


class EntityTable:
    """Entities by id and by handle. Sources and subscribers share one set of ids.

    Handles and coordinates are those of `nearest`; this table has the times of positions.
    """

    def __init__(self, space: Space, nearest: NearestSources, ids: IdTable) -> None:
        self._space = space
        self._nearest = nearest
        self._ids = ids
        self._attributes: list[Attributes] = []  # by handle
        self._last_moves: Rows = np.zeros(0, LAST_MOVE)  # by handle
        self._next_move = 1
        self._source_ids: list[str | None] = []  # by handle; None for subscribers, whose ids are only in the id table
        self._with_attribute: dict[tuple[str, Attribute], dict[int, None]] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, id: str) -> bool:
        return bool(self._ids.find([id])[0] >= 0)

    @property
    def nbytes(self) -> int:
        """The memory of the times of positions and the numbers of moves."""
        return self._last_moves.nbytes

    def find(self, ids: Sequence[str]) -> Int32s:
        """The handles of entities, or -1."""
        return self._ids.find(ids)

    def get(self, id: str, kind: EntityKind | None = None) -> BinderEntity:
        """Raises NotFoundError."""
        return self.at(int(self.known([id], kind)[0]))

    def known(self, ids: Sequence[str], kind: EntityKind | None = None) -> Int32s:
        """The handles of entities. Raises NotFoundError for the first unknown one, or one of another kind."""
        handles = self._ids.find(ids)
        if len(unknown := np.flatnonzero(handles < 0)):
            missing = f"unknown {kind or 'entity'} {ids[unknown[0]]!r}"
            raise NotFoundError(missing, where=kind or "entity", hint="register it first")
        if kind is not None:
            for id, handle in zip(ids, handles.tolist(), strict=True):
                if (other := self.kind(handle)) != kind:
                    raise NotFoundError(f"unknown {kind} {id!r}", where=kind, hint=f"{id!r} is a {other}")
        return handles

    def at(self, handle: int) -> BinderEntity:
        """The entity with this handle, which must be in use."""
        return BinderEntity(self.id(handle), self.kind(handle), self._attributes[handle], handle)

    def id(self, handle: int) -> str:
        return self._source_ids[handle] or self._ids[handle]

    def kind(self, handle: int) -> EntityKind:
        return "subscriber" if self._source_ids[handle] is None else "source"

    def attributes(self, handle: int) -> Attributes:
        return self._attributes[handle]

    @property
    def sources(self) -> Collection[int]:
        """The handles of all sources."""
        return [handle for handle, id in enumerate(self._source_ids) if id is not None]

    def sources_with(self, name: str, value: Attribute) -> Collection[int]:
        """The sources with this attribute. Does not distinguish True from 1 and False from 0."""
        return self._with_attribute.get((name, value), {}).keys()

    def add(self, kind: EntityKind, new: NewEntities) -> Int32s:
        """Add entities and return their handles. Raises ConflictError for an id in use, InputError for a bad point."""
        x, y = self.checked(new.ids, new.x, new.y)
        handles = self._nearest.add_sources(new.ids, x, y) if kind == "source" else self._nearest.add_subscribers(x, y)
        self._ids.add(new.ids, handles)
        size = int(handles.max(initial=-1)) + 1
        self._last_moves = grow(self._last_moves, size)
        self._last_moves["time"][handles] = new.times
        self._attributes += [_NO_ATTRIBUTES] * (size - len(self._attributes))
        self._source_ids += [None] * (size - len(self._source_ids))
        for handle, id, attributes in zip(handles.tolist(), new.ids, new.attributes, strict=True):
            self._attributes[handle] = attributes
            if kind == "source":
                self._source_ids[handle] = id
                self._index_attributes(handle, attributes)
        return handles

    def change(self, entity: BinderEntity, attributes: Attributes) -> BinderEntity:
        """Replace the attributes. Returns the changed entity."""
        if entity.kind == "source":
            self._unindex_attributes(entity)
            self._index_attributes(entity.handle, attributes)
        self._attributes[entity.handle] = attributes
        return self.at(entity.handle)

    def remove(self, *entities: BinderEntity) -> None:
        """Remove entities that are in no group and have no subscriptions."""
        for entity in entities:
            self._ids.remove(entity.handle)
            self._attributes[entity.handle] = _NO_ATTRIBUTES
            if entity.kind == "source":
                self._source_ids[entity.handle] = None
                self._unindex_attributes(entity)
        self._nearest.remove([entity.handle for entity in entities])

    def forget_position(self, handle: int) -> None:
        """Erase a position. The caller updates the groups."""
        self._last_moves["time"][handle] = BEFORE_ALL

    def position(self, entity: BinderEntity) -> Position | None:
        if not self.has_position(entity.handle):
            return None
        (x,), (y,) = self._nearest.positions(entity.handle)
        return Position(entity.id, float(x), float(y), int(self._last_moves["time"][entity.handle]))

    def has_position(self, handle: int) -> bool:
        return bool(self._last_moves["time"][handle] != BEFORE_ALL)

    def have_position(self, handles: Int32s) -> npt.NDArray[np.bool_]:
        has_position: npt.NDArray[np.bool_] = self._last_moves["time"][handles] != BEFORE_ALL
        return has_position

    def coordinates(self, handles: Int32s) -> tuple[Floats, Floats]:
        """The coordinates of entities; NaN without a position."""
        has_position = self.have_position(handles)
        x, y = self._nearest.positions(handles)
        return np.where(has_position, x, np.nan), np.where(has_position, y, np.nan)

    def move(self, ids: Sequence[str], x: npt.ArrayLike, y: npt.ArrayLike, times: npt.ArrayLike) -> EntityMoves:
        """Accept moves in the given order, and ignore those older than a known position.

        The node has checked the times of its own entities, but not those of peer sources.

        Raises NotFoundError for an unknown entity and InputError for a bad point; nothing is changed then. The caller
        passes the moves that are returned to `NearestSources`.
        """
        xs, ys, when = np.asarray(x, np.float64), np.asarray(y, np.float64), np.asarray(times, np.int64)
        if not len(ids) == xs.size == ys.size == when.size:
            counts = f"{len(ids)} entities, {xs.size} x, {ys.size} y and {when.size} times"
            raise InputError(counts, hint="pass a point and a time for each entity")
        handles = self.known(ids)
        xs, ys = self.checked(ids, xs, ys)
        rows, is_first = np.empty(len(handles), np.int32), np.empty(len(handles), np.bool_)
        count = accept_moves(self._last_moves, self._next_move, handles, when, rows, is_first)
        self._next_move += count
        if count < len(handles):
            last = rows[:count]
            handles, xs, ys = handles[last], xs[last], ys[last]
        return EntityMoves(handles, xs, ys, is_first[:count])

    def checked(self, ids: Sequence[str], x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Points as arrays. Raises InputError for the first one outside the space."""
        reasons = self._space.bad_points(x, y)
        for row in np.flatnonzero(reasons).tolist():
            raise InputError(reasons[row], where=ids[row], hint=f"coordinates are {self._space.name}, x before y")
        return checked_points(x, y)

    def _index_attributes(self, handle: int, attributes: Attributes) -> None:
        for item in attributes.items():
            self._with_attribute.setdefault(item, {})[handle] = None

    def _unindex_attributes(self, entity: BinderEntity) -> None:
        for item in entity.attributes.items():
            del self._with_attribute[item][entity.handle]
            if not self._with_attribute[item]:
                del self._with_attribute[item]
