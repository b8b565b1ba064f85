"""Distances for kernels: chords, and metres as `space.distance` has them.

A *chord* is a straight line in the chart: the plane itself, or for geographic space the auxiliary sphere of reduced
latitudes. Chords are a metric, and bound metres from both sides. In geographic space the metres of Lambert's formula
lie between (1 - f) times the arc over the chord and that arc, whatever the points are; in the plane they are the chord,
but for rounding.
"""

from __future__ import annotations

from math import atan, atan2, cos, hypot, inf, pi, radians, sin, sqrt, tan
from typing import Final

from roamcast.bind.nearest.kernels.layout import Row
from roamcast.compiled import kernel

__all__ = ["beyond", "chart", "in_doubt", "metres", "shrink", "square", "step", "stretch", "within"]

_ROUND: Final = 1e-13  # relative slack of planar comparisons
_TINY: Final = 1e-140  # absolute slack of planar comparisons: squares of what is smaller underflow

# WGS84, as in `space`.
_RADIUS: Final = 6_378_137.0
_FLATTENING: Final = 1 / 298.257223563
_SLOP: Final = 1e-3  # metres; far above the rounding of the chart
_DOUBT: Final = 1e-6  # metres by which `metres` may differ from `space.distance` …
_DOUBT_FROM: Final = 1.8e7  # … up to here; towards the antipode rounding may grow to kilometres


@kernel
def chart(geographic: bool, x: float, y: float) -> tuple[float, float, float]:
    if not geographic:
        return x, y, 0.0
    t = (1 - _FLATTENING) * tan(radians(y))
    flat = _RADIUS / sqrt(1 + t * t)
    return flat * cos(radians(x)), flat * sin(radians(x)), flat * t


@kernel
def metres(geographic: bool, a: Row, b: Row) -> float:
    """The distance of two rows of entities as `space.distance` has it."""
    x1, y1, x2, y2 = a.x, a.y, b.x, b.y
    if not geographic:
        return hypot(x2 - x1, y2 - y1)
    b1, b2 = atan((1 - _FLATTENING) * tan(radians(y1))), atan((1 - _FLATTENING) * tan(radians(y2)))
    half_turn = sin(radians(x2 - x1) / 2) ** 2
    sin2_p, sin2_q = sin((b1 + b2) / 2) ** 2, sin((b2 - b1) / 2) ** 2
    sin2 = sin2_q * (1 - half_turn) + (1 - sin2_p) * half_turn
    cos2 = (1 - sin2_q) * (1 - half_turn) + sin2_p * half_turn
    angle = 2 * atan2(sqrt(sin2), sqrt(cos2))
    far = (angle - sin(angle)) * (sin2_p * (1 - sin2_q) / cos2 if cos2 != 0 else 0.0)
    near = (angle + sin(angle)) * ((1 - sin2_p) * sin2_q / sin2 if sin2 != 0 else 0.0)
    return _RADIUS * (angle - _FLATTENING / 2 * (far + near))


@kernel
def within(geographic: bool, length: float) -> float:
    """A chord up to this is surely no longer than so many metres."""
    if not geographic:
        return length * (1 - _ROUND) - _TINY
    arc = length / _RADIUS
    return 2 * _RADIUS * sin(arc / 2) - _SLOP if arc < pi else inf


@kernel
def beyond(geographic: bool, length: float) -> float:
    """A chord over this is surely longer than so many metres."""
    if not geographic:
        return length * (1 + _ROUND) + _TINY
    arc = length / (1 - _FLATTENING) / _RADIUS
    return 2 * _RADIUS * sin(arc / 2) + _SLOP if arc < pi else inf


@kernel
def stretch(geographic: bool, chord: float) -> float:
    """Metres of a longer chord than this surely exceed those of `chord`."""
    return chord / (1 - _FLATTENING) + _SLOP if geographic else chord * (1 + _ROUND) + _TINY


@kernel
def shrink(geographic: bool, chord: float) -> float:
    """Metres of a shorter chord than this surely fall below those of `chord`."""
    return chord * (1 - _FLATTENING) - _SLOP if geographic else chord * (1 - _ROUND) - _TINY


@kernel
def in_doubt(geographic: bool, a: float, b: float) -> bool:
    """Whether only `space.distance` can tell which of two distances is less."""
    return geographic and (abs(a - b) <= _DOUBT or max(a, b) > _DOUBT_FROM)


@kernel
def square(a: Row, x: float, y: float, z: float) -> float:
    dx, dy, dz = a.x - x, a.y - y, a.z - z
    return float(dx * dx + dy * dy + dz * dz)


@kernel
def step(geographic: bool, dx: float, dy: float) -> float:
    """A chord at least as long as that of a step by these coordinates, wherever it is made."""
    if not geographic:
        return sqrt(dx * dx + dy * dy)
    turn = min(abs(dx), 360 - abs(dx))
    return _RADIUS * radians(hypot(turn, dy / (1 - _FLATTENING))) * (1 + _ROUND)
