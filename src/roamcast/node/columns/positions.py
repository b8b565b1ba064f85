"""The positions of a request as columns, as `events` does for events. `PositionIn` is the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from roamcast.node.columns.arrays import NO_TIME, Floats, Integers, read_floats, read_texts, read_times
from roamcast.node.columns.values import column, floats, texts, times
from roamcast.node.schemas import PositionIn
from roamcast.settings_model import NodeLimits

__all__ = ["PositionColumns", "positions_of_models", "positions_of_table", "positions_of_values"]

_FIELDS: Final = frozenset(PositionIn.model_fields)


@dataclass(frozen=True, slots=True)
class PositionColumns:
    """Positions, a row each. What is not given is null in `entity` and NO_TIME in `time`."""

    entity: pa.StringArray
    x: Floats
    y: Floats
    time: Integers

    def __len__(self) -> int:
        return len(self.x)


def positions_of_models(positions: Sequence[PositionIn]) -> PositionColumns:
    return PositionColumns(
        pa.array([position.entity for position in positions], pa.string()),
        np.array([position.x for position in positions], np.float64),
        np.array([position.y for position in positions], np.float64),
        np.array([NO_TIME if position.time is None else position.time for position in positions], np.int64),
    )


def positions_of_values(rows: Sequence[Any], limits: NodeLimits) -> PositionColumns | None:
    """The positions in JSON values; None if one may be bad."""
    if set(map(type, rows)) != {dict} or not _FIELDS.issuperset(chain.from_iterable(rows)):
        return None
    return _plain(
        lambda: PositionColumns(
            texts(column(rows, "entity")),
            floats(column(rows, "x")),
            floats(column(rows, "y")),
            times(column(rows, "time")),
        )
    )


def positions_of_table(arrays: Mapping[str, pa.Array], count: int, limits: NodeLimits) -> PositionColumns | None:
    """The positions in `count` rows of a table; None if one may be bad."""

    def array(name: str) -> pa.Array:
        return arrays[name] if name in arrays else pa.nulls(count)

    return _plain(
        lambda: PositionColumns(
            read_texts(array("entity")), read_floats(array("x")), read_floats(array("y")), read_times(array("time"))
        )
    )


def _plain(make: Callable[[], PositionColumns]) -> PositionColumns | None:
    try:
        positions = make()
    except (TypeError, ValueError, OverflowError):
        return None
    return positions if np.isfinite(positions.x).all() and np.isfinite(positions.y).all() else None
