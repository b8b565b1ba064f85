"""The registry: who is here, with which attributes, and where it was last."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from roamcast.bind.lcesm.messages import Attributes
from roamcast.bind.nearest.forest import grown
from roamcast.bind.nearest.id_table import Names
from roamcast.bind.nearest.kernels.clocks import CLOCK, NEVER, take
from roamcast.bind.nearest.kernels.layout import Integers, Rows
from roamcast.bind.nearest.watch import Watch, checked_points
from roamcast.errors import InputError, NotFoundError
from roamcast.lacl.conditions import Attribute
from roamcast.model import Position
from roamcast.space import Floats, Space

__all__ = ["STILL", "Arrivals", "Entity", "Kind", "Moves", "Registry"]

Kind: TypeAlias = Literal["source", "subscriber"]

_NO_ATTRIBUTES: Final[Attributes] = {}


@dataclass(frozen=True, slots=True)
class Entity:
    """`handle` is its row in arrays, here and in the watch."""

    id: str
    kind: Kind
    attributes: Attributes
    handle: int


@dataclass(frozen=True, slots=True)
class Arrivals:
    """New entities of one kind, column by column."""

    ids: list[str] = field(default_factory=list)
    attributes: list[Attributes] = field(default_factory=list)
    x: array[float] = field(default_factory=lambda: array("d"))
    y: array[float] = field(default_factory=lambda: array("d"))
    times: array[int] = field(default_factory=lambda: array("q"))

    def add(self, id: str, attributes: Attributes, position: Position | None) -> None:
        """Those whose position is not known stand anywhere."""
        x, y, time = (0.0, 0.0, NEVER) if position is None else (position.x, position.y, position.time)
        self.ids.append(id)
        self.attributes.append(attributes or _NO_ATTRIBUTES)
        self.x.append(x)
        self.y.append(y)
        self.times.append(time)


@dataclass(frozen=True, slots=True)
class Moves:
    """Where entities are now, each once; `first` marks those whose position was not known before."""

    handles: Integers
    x: Floats
    y: Floats
    first: npt.NDArray[np.bool_]


STILL: Final = Moves(np.empty(0, np.int32), np.empty(0, np.float64), np.empty(0, np.float64), np.empty(0, np.bool_))
"""Nobody moves."""


class Registry:
    """Entities by id and by handle. Sources and subscribers share one set of ids.

    Handles are the watch's, and so are positions: here is kept at what time each was taken. `stale` counts the moves
    that came after a later one.
    """

    def __init__(self, space: Space, watch: Watch, names: Names) -> None:
        self.stale = 0
        self._space = space
        self._watch = watch
        self._names = names
        self._attributes: list[Attributes] = []  # by handle
        self._clock: Rows = np.zeros(0, CLOCK)  # by handle
        self._turn = 1
        self._ids: list[str | None] = []  # by handle; None for subscribers, whose ids are in `names` alone
        self._with: dict[tuple[str, Attribute], dict[int, None]] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, id: str) -> bool:
        return bool(self._names.find([id])[0] >= 0)

    @property
    def nbytes(self) -> int:
        """The memory of the times of positions."""
        return self._clock.nbytes

    def find(self, ids: Sequence[str]) -> Integers:
        """The handles of entities, or -1."""
        return self._names.find(ids)

    def get(self, id: str, kind: Kind | None = None) -> Entity:
        """Raises NotFoundError."""
        return self.at(int(self.known([id], kind)[0]))

    def known(self, ids: Sequence[str], kind: Kind | None = None) -> Integers:
        """The handles of entities. Raises NotFoundError for the first that is not there, or is of another kind."""
        handles = self._names.find(ids)
        if len(unknown := np.flatnonzero(handles < 0)):
            missing = f"no {kind or 'entity'} {ids[unknown[0]]!r}"
            raise NotFoundError(missing, where=kind or "entity", hint="register it first")
        if kind is not None:
            for id, handle in zip(ids, handles.tolist(), strict=True):
                if (other := self.kind(handle)) != kind:
                    raise NotFoundError(f"no {kind} {id!r}", where=kind, hint=f"{id!r} is a {other}")
        return handles

    def at(self, handle: int) -> Entity:
        """The entity with this handle, which somebody has."""
        return Entity(self.id(handle), self.kind(handle), self._attributes[handle], handle)

    def id(self, handle: int) -> str:
        return self._ids[handle] or self._names[handle]

    def kind(self, handle: int) -> Kind:
        return "subscriber" if self._ids[handle] is None else "source"

    def attributes(self, handle: int) -> Attributes:
        return self._attributes[handle]

    @property
    def sources(self) -> Collection[int]:
        """The handles of all sources."""
        return [handle for handle, id in enumerate(self._ids) if id is not None]

    def sources_with(self, name: str, value: Attribute) -> Collection[int]:
        """The sources with this attribute. A truth value and the number it equals are not told apart."""
        return self._with.get((name, value), {}).keys()

    def add(self, kind: Kind, new: Arrivals) -> Integers:
        """Their handles. Raises ConflictError for an id that is taken, InputError for a point out of space."""
        x, y = self.checked(new.ids, new.x, new.y)
        handles = self._watch.add_sources(new.ids, x, y) if kind == "source" else self._watch.add_subscribers(x, y)
        self._names.add(new.ids, handles)
        size = int(handles.max(initial=-1)) + 1
        self._clock = grown(self._clock, size)
        self._clock["time"][handles] = new.times
        self._attributes += [_NO_ATTRIBUTES] * (size - len(self._attributes))
        self._ids += [None] * (size - len(self._ids))
        for handle, id, attributes in zip(handles.tolist(), new.ids, new.attributes, strict=True):
            self._attributes[handle] = attributes
            if kind == "source":
                self._ids[handle] = id
                self._post(handle, attributes)
        return handles

    def change(self, entity: Entity, attributes: Attributes) -> Entity:
        """The entity as it is now."""
        if entity.kind == "source":
            self._withdraw(entity)
            self._post(entity.handle, attributes)
        self._attributes[entity.handle] = attributes
        return self.at(entity.handle)

    def remove(self, *entities: Entity) -> None:
        """They are in no group and have no subscriptions any more."""
        for entity in entities:
            self._names.remove(entity.handle)
            self._attributes[entity.handle] = _NO_ATTRIBUTES
            if entity.kind == "source":
                self._ids[entity.handle] = None
                self._withdraw(entity)
        self._watch.remove([entity.handle for entity in entities])

    def unplace(self, handle: int) -> None:
        """Its position is not known any more. Groups have yet to be told."""
        self._clock["time"][handle] = NEVER

    def position(self, entity: Entity) -> Position | None:
        if not self.placed(entity.handle):
            return None
        (x,), (y,) = self._watch.where(entity.handle)
        return Position(entity.id, float(x), float(y), int(self._clock["time"][entity.handle]))

    def placed(self, handle: int) -> bool:
        """Whether its position is known."""
        return bool(self._clock["time"][handle] != NEVER)

    def are_placed(self, handles: Integers) -> npt.NDArray[np.bool_]:
        placed: npt.NDArray[np.bool_] = self._clock["time"][handles] != NEVER
        return placed

    def where(self, handles: Integers) -> tuple[Floats, Floats]:
        """Where entities are; NaN where that is not known."""
        placed = self.are_placed(handles)
        x, y = self._watch.where(handles)
        return np.where(placed, x, np.nan), np.where(placed, y, np.nan)

    def move(self, ids: Sequence[str], x: npt.ArrayLike, y: npt.ArrayLike, times: npt.ArrayLike) -> Moves:
        """Take moves in the order given; what is older than what is known is ignored and counted.

        Raises NotFoundError for an unknown entity and InputError for a point out of space; then nothing is changed.
        The watch has yet to be told of the moves that are returned.
        """
        xs, ys, when = np.asarray(x, np.float64), np.asarray(y, np.float64), np.asarray(times, np.int64)
        if not len(ids) == xs.size == ys.size == when.size:
            counts = f"{len(ids)} entities, {xs.size} x, {ys.size} y and {when.size} times"
            raise InputError(counts, hint="give a point and a time for each entity")
        handles = self.known(ids)
        xs, ys = self.checked(ids, xs, ys)
        rows, first = np.empty(len(handles), np.int32), np.empty(len(handles), np.bool_)
        count, stale = take(self._clock, self._turn, handles, when, rows, first)
        self._turn += count
        self.stale += stale
        if count < len(handles):
            last = rows[:count]
            handles, xs, ys = handles[last], xs[last], ys[last]
        return Moves(handles, xs, ys, first[:count])

    def checked(self, ids: Sequence[str], x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Raises InputError for the first point that is out of space."""
        reasons = self._space.bad_points(x, y)
        for row in np.flatnonzero(reasons).tolist():
            raise InputError(reasons[row], where=ids[row], hint=f"coordinates are {self._space.name}, x before y")
        return checked_points(x, y)

    def _post(self, handle: int, attributes: Attributes) -> None:
        for item in attributes.items():
            self._with.setdefault(item, {})[handle] = None

    def _withdraw(self, entity: Entity) -> None:
        for item in entity.attributes.items():
            del self._with[item][entity.handle]
            if not self._with[item]:
                del self._with[item]
