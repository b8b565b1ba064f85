"""Position intake: check reported positions and hand them to the control writer."""

from __future__ import annotations

import numpy as np

from roamcast.errors import InputError
from roamcast.model import Position
from roamcast.node.clock import check_time
from roamcast.node.columns.arrays import NO_TIME
from roamcast.node.columns.rows import PositionColumns
from roamcast.node.publish_rights import PublishRights, owners_of
from roamcast.space import Space

__all__ = ["positions_of"]


def positions_of(
    columns: PositionColumns, rights: PublishRights, space: Space, ahead: float, *, bulk: bool, now: int
) -> list[Position]:
    """The positions of a request. `now` is the default time, and times may be `ahead` seconds after it.

    Raises PermissionDeniedError, and InputError for the first invalid row. `bulk`: errors name the row.
    """

    def where(row: int, field: str) -> str:
        return f"positions[{row}].{field}" if bulk else field

    owners = owners_of(columns.entity, rights, "entity", where)
    x, y = columns.x, columns.y
    times = np.where(columns.time == NO_TIME, now, columns.time)
    bad = ~space.valid_points(x, y) | (times > now + round(ahead * 1_000_000))
    if bad.any():
        row = int(bad.argmax())
        try:
            space.check_point(float(x[row]), float(y[row]))
        except InputError as error:
            raise InputError(error.message, where=where(row, error.where or "x"), hint=error.hint) from None
        check_time(int(times[row]), now, ahead, where(row, "time"))
    entities = [owners.ids[owner] for owner in owners.of_row]
    return list(map(Position, entities, x.tolist(), y.tolist(), times.tolist()))
