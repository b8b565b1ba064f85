"""Which coordinates are valid in a space. Pure Python: the client checks its input with this, without numpy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from roamcast.errors import InputError
from roamcast.model import Box

__all__ = ["COORDINATES", "GEOGRAPHIC_LIMITS", "PLANAR_LIMITS", "CoordinateFault", "CoordinateLimits"]


class CoordinateFault(NamedTuple):
    """What is wrong with a coordinate: its name, a message and a hint."""

    where: str
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.where} {self.message}"


@dataclass(frozen=True, slots=True)
class CoordinateLimits:
    """Coordinates between -limit and limit. `wraps`: x is cyclic, so that a box may cross the antimeridian."""

    name: str
    x_limit: float
    y_limit: float
    wraps: bool
    range_hint: str  # for a coordinate out of range

    def check_point(self, x: float, y: float) -> None:
        """Raise InputError if the point is invalid. `where` names the coordinate."""
        if fault := self.point_fault(x, y):
            raise InputError(fault.message, where=fault.where, hint=fault.hint)

    def check_box(self, box: Box, *, crosses_antimeridian: bool | None = None) -> None:
        """Raise InputError if the box is invalid. `where` names the border.

        `crosses_antimeridian` says what the user stated: a box with min_x > max_x is valid only if it was stated, and
        any other box only if it was not. None (internal boxes, LACL): the order of min_x and max_x decides.
        """
        fault = self.box_fault(*box)
        if fault is None and crosses_antimeridian is not None:
            fault = _crossing_fault(box, crosses_antimeridian)
        if fault:
            raise InputError(fault.message, where=fault.where, hint=fault.hint)

    def point_fault(self, x: float, y: float) -> CoordinateFault | None:
        return self._fault("x", x, self.x_limit) or self._fault("y", y, self.y_limit)

    def box_fault(self, min_x: float, min_y: float, max_x: float, max_y: float) -> CoordinateFault | None:
        fault = (
            self._fault("min_x", min_x, self.x_limit)
            or self._fault("min_y", min_y, self.y_limit)
            or self._fault("max_x", max_x, self.x_limit)
            or self._fault("max_y", max_y, self.y_limit)
        )
        if fault is None and min_y > max_y:
            return CoordinateFault("min_y", f"{min_y:.15g} is greater than max_y {max_y:.15g}", "swap them")
        if fault is None and min_x > max_x and not self.wraps:
            hint = "swap them; only geographic boxes can cross the antimeridian"
            return CoordinateFault("min_x", f"{min_x:.15g} is greater than max_x {max_x:.15g}", hint)
        return fault

    def _fault(self, where: str, value: float, limit: float) -> CoordinateFault | None:
        if math.isnan(value):
            return CoordinateFault(where, "is not a number", "use a finite number")
        if math.isinf(value):
            return CoordinateFault(where, "is infinite", "use a finite number")
        if abs(value) > limit:
            return CoordinateFault(where, f"{value:.15g} is outside -{limit:g} to {limit:g}", self.range_hint)
        return None


def _crossing_fault(box: Box, stated: bool) -> CoordinateFault | None:
    if box.min_x > box.max_x and not stated:
        hint = "swap them; if the box crosses the antimeridian, set crosses_antimeridian (--crosses-antimeridian)"
        return CoordinateFault("min_x", f"{box.min_x:.15g} is greater than max_x {box.max_x:.15g}", hint)
    if box.min_x <= box.max_x and stated:
        hint = "min_x is the western border and must be greater than max_x; otherwise omit crosses_antimeridian"
        return CoordinateFault("crosses_antimeridian", "this box does not cross the antimeridian", hint)
    return None


GEOGRAPHIC_LIMITS: Final = CoordinateLimits(
    name="geographic",
    x_limit=180.0,
    y_limit=90.0,
    wraps=True,
    range_hint="x is longitude and y is latitude, in degrees; use planar space for metres",
)
PLANAR_LIMITS: Final = CoordinateLimits(
    name="planar",
    x_limit=1e150,  # metres; squares of larger distances overflow
    y_limit=1e150,
    wraps=False,
    range_hint="use metres from a nearer origin",
)
COORDINATES: Final[Mapping[str, CoordinateLimits]] = {"geographic": GEOGRAPHIC_LIMITS, "planar": PLANAR_LIMITS}
