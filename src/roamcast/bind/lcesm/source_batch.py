"""What is said of many sources at once, sorted out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from roamcast.bind.lcesm.messages import (
    Attributes,
    EntityMoved,
    PositionForgotten,
    SourceChanged,
    SourceMessage,
    SourceRegistered,
    SourceRemoved,
)
from roamcast.bind.lcesm.registry import Arrivals
from roamcast.errors import InputError

__all__ = ["Tidings"]


class _Moves(NamedTuple):
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
class Tidings:
    """By kind, each source once, but for moves. Of one that comes or goes nothing else is said."""

    new: Arrivals = field(default_factory=Arrivals)
    gone: dict[str, None] = field(default_factory=dict)
    changed: dict[str, Attributes] = field(default_factory=dict)
    unplaced: dict[str, None] = field(default_factory=dict)
    moves: _Moves = field(default_factory=lambda: _Moves([], [], [], []))

    @classmethod
    def of(cls, messages: Iterable[SourceMessage]) -> Tidings:
        """Raises InputError where more is said of a source that comes or goes."""
        told, once = cls(), list[str]()
        for message in messages:
            match message:
                case SourceRegistered(id, attributes, position):
                    told.new.add(id, attributes, position)
                    once.append(id)
                case SourceRemoved(id):
                    told.gone[id] = None
                    once.append(id)
                case SourceChanged(id, attributes):
                    told.changed[id] = attributes
                case PositionForgotten(id):
                    told.unplaced[id] = None
                case EntityMoved(id, x, y, time):
                    told.moves.add(id, x, y, time)
        others = {*told.changed, *told.unplaced, *told.moves.ids}
        for id in once:
            if id in others:
                raise InputError("a source comes or goes, and more is said of it", where=id, hint="say it one by one")
            others.add(id)
        return told

    @property
    def stirred(self) -> dict[str, None]:
        """The sources that were there and may be in other groups now, or in none."""
        return self.gone | dict.fromkeys(self.changed) | self.unplaced

    @property
    def known(self) -> list[str]:
        """All that must have been there before."""
        return list(self.stirred | dict.fromkeys(self.moves.ids))
