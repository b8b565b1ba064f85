"""Many messages about sources, sorted by kind, so that they take effect together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from roamcast.bind.lcesm.entities import NewEntities
from roamcast.bind.lcesm.messages import (
    Attributes,
    EntityMoved,
    PositionForgotten,
    SourceChanged,
    SourceMessage,
    SourceRegistered,
    SourceRemoved,
)
from roamcast.errors import InputError

__all__ = ["SourceBatch"]


class _MoveColumns(NamedTuple):
    ids: list[str]
    x: list[float]
    y: list[float]
    times: list[int]

    def add(self, id: str, x: float, y: float, time: int) -> None:
        self.ids.append(id)
        self.x.append(x)
        self.y.append(y)
        self.times.append(time)


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """Messages by kind. A source that is registered or removed has no other message."""

    new: NewEntities = field(default_factory=NewEntities)
    removed: dict[str, None] = field(default_factory=dict)
    changed: dict[str, Attributes] = field(default_factory=dict)
    forgotten: dict[str, None] = field(default_factory=dict)
    moves: _MoveColumns = field(default_factory=lambda: _MoveColumns([], [], [], []))

    @classmethod
    def of(cls, messages: Iterable[SourceMessage]) -> SourceBatch:
        """Raises InputError if a source that is registered or removed has another message."""
        batch, single = cls(), list[str]()
        for message in messages:
            match message:
                case SourceRegistered(id, attributes, position):
                    batch.new.add(id, attributes, position)
                    single.append(id)
                case SourceRemoved(id):
                    batch.removed[id] = None
                    single.append(id)
                case SourceChanged(id, attributes):
                    batch.changed[id] = attributes
                case PositionForgotten(id):
                    batch.forgotten[id] = None
                case EntityMoved(id, x, y, time):
                    batch.moves.add(id, x, y, time)
        others = {*batch.changed, *batch.forgotten, *batch.moves.ids}
        for id in single:
            if id in others:
                reason = "a batch registers or removes a source and has another message about it"
                raise InputError(reason, where=id, hint="send them one after the other")
            others.add(id)
        return batch

    @property
    def regrouped(self) -> dict[str, None]:
        """Known sources that may be in other groups after the batch, or in none."""
        return self.removed | dict.fromkeys(self.changed) | self.forgotten

    @property
    def known(self) -> list[str]:
        """All sources that must be registered before the batch."""
        return list(self.regrouped | dict.fromkeys(self.moves.ids))
