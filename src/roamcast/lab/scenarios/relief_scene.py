"""Map features of the disaster area."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from math import cos, radians, sin
from typing import Final

from roamcast.lab.scenarios.relief_area import AREA, BASES, COVERAGE, ReliefArea, ReliefShift, to_degrees
from roamcast.lab.scenarios.scene import Feature, feature

__all__ = ["moving_layers", "scenery"]

_CIRCLE: Final = tuple(radians(10 * step) for step in range(37))


def scenery(area: ReliefArea, domains: Sequence[str]) -> Mapping[str, Mapping[str, Feature]]:
    """Static layers: cells with sensors, sensors, links in communities, and coverage of bases."""
    cells: dict[str, Feature] = {}
    sensors: dict[str, Feature] = {}
    lines: dict[str, Feature] = {}
    size = AREA.side / AREA.cells
    for sensor in range(AREA.sensors):
        near = area.neighbours(sensor)
        name = f"community {area.communities.of[sensor]}" if near else "isolated sensor"
        column, row = int(area.world.x[sensor] // size), int(area.world.y[sensor] // size)
        corners = [(column, row), (column + 1, row), (column + 1, row + 1), (column, row + 1), (column, row)]
        ring = [list(to_degrees(c * size, r * size)) for c, r in corners]
        cells[f"{column}-{row}"] = feature("Polygon", [ring], name, "cell" if near else "isolated cell")
        label = f"{area.sensor(sensor)} of {domains[area.home(sensor)]}"
        sensors[area.sensor(sensor)] = feature("Point", _at(area, sensor), label, "field sensor")
        for other in near:
            if sensor < other:
                ends = [_at(area, sensor), _at(area, other)]
                lines[f"{sensor}-{other}"] = feature("LineString", ends, name, "community")
    rings = [[list(to_degrees(x + COVERAGE * cos(a), y + COVERAGE * sin(a))) for a in _CIRCLE] for x, y in BASES]
    bases = {
        domain: feature("Polygon", [ring], f"base {domain}", "coverage")
        for domain, ring in zip(domains, rings, strict=True)
    }
    return {"cells": cells, "sensors": sensors, "communities": lines, "coverage": bases}


def moving_layers(
    area: ReliefArea, shift: ReliefShift, bags: Sequence[Sized], time: float
) -> Mapping[str, dict[str, Feature]]:
    """Moving layers: teams with the number of events they carry, and path sets."""
    teams: dict[str, Feature] = {}
    paths: dict[str, Feature] = {}
    for number, (team, bag) in enumerate(zip(area.teams(), bags, strict=True)):
        position = list(to_degrees(*shift.position(number, time)))
        teams[team.id] = feature("Point", position, f"{team.id} carries {len(bag)}", "rescue team")
        for sensor, above in shift.paths(number, time):
            ends = [_at(area, sensor), position if above is None else _at(area, above)]
            paths[f"{team.id}-{sensor}-{above}"] = feature("LineString", ends, f"path set of {team.id}", "path")
    return {"teams": teams, "paths": paths}


def _at(area: ReliefArea, sensor: int) -> list[float]:
    return list(area.point(sensor))
