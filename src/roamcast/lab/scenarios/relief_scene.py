"""What the disaster area looks like on the map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from math import cos, radians, sin
from typing import Final

from roamcast.lab.scenarios.drawing import Feature, feature
from roamcast.lab.scenarios.relief_area import AREA, BASES, COVERAGE, Area, Shift, place

__all__ = ["moving_layers", "scenery"]

_CIRCLE: Final = tuple(radians(10 * step) for step in range(37))


def scenery(area: Area, domains: Sequence[str]) -> Mapping[str, Mapping[str, Feature]]:
    """Cells that sensors are in, sensors, who hears whom in communities, and the coverage of each base."""
    cells: dict[str, Feature] = {}
    sensors: dict[str, Feature] = {}
    lines: dict[str, Feature] = {}
    size = AREA.side / AREA.cells
    for sensor in range(AREA.sensors):
        near = area.near(sensor)
        name = f"community {area.communities.of[sensor]}" if near else "loner"
        column, row = int(area.world.x[sensor] // size), int(area.world.y[sensor] // size)
        corners = [(column, row), (column + 1, row), (column + 1, row + 1), (column, row + 1), (column, row)]
        ring = [list(place(c * size, r * size)) for c, r in corners]
        cells[f"{column}-{row}"] = feature("Polygon", [ring], name, "cell" if near else "loner's cell")
        label = f"{area.sensor(sensor)} of {domains[area.home(sensor)]}"
        sensors[area.sensor(sensor)] = feature("Point", _at(area, sensor), label, "field sensor")
        for other in near:
            if sensor < other:
                ends = [_at(area, sensor), _at(area, other)]
                lines[f"{sensor}-{other}"] = feature("LineString", ends, name, "community")
    rings = [[list(place(x + COVERAGE * cos(a), y + COVERAGE * sin(a))) for a in _CIRCLE] for x, y in BASES]
    bases = {
        domain: feature("Polygon", [ring], f"base {domain}", "coverage")
        for domain, ring in zip(domains, rings, strict=True)
    }
    return {"cells": cells, "sensors": sensors, "communities": lines, "coverage": bases}


def moving_layers(area: Area, shift: Shift, bags: Sequence[Sized], time: float) -> Mapping[str, dict[str, Feature]]:
    """Teams with what they carry, and the path sets that lead to them."""
    teams: dict[str, Feature] = {}
    paths: dict[str, Feature] = {}
    for number, (team, bag) in enumerate(zip(area.teams(), bags, strict=True)):
        here = list(place(*shift.where(number, time)))
        teams[team.id] = feature("Point", here, f"{team.id} carries {len(bag)}", "rescue team")
        for sensor, above in shift.paths(number, time):
            ends = [_at(area, sensor), here if above is None else _at(area, above)]
            paths[f"{team.id}-{sensor}-{above}"] = feature("LineString", ends, f"path set of {team.id}", "path")
    return {"teams": teams, "paths": paths}


def _at(area: Area, sensor: int) -> list[float]:
    return list(area.point(sensor))
