"""A field described in a TOML file: `roamcast simulate FIELD.toml`."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from roamcast.collect.contacts import Contacts
from roamcast.collect.energy import Radio
from roamcast.collect.field import Field, World, draw
from roamcast.collect.protocols import CET, DG, Epidemic, Protocol
from roamcast.collect.traces import read_contacts, read_movement
from roamcast.durable import refusals_named
from roamcast.errors import InputError

__all__ = ["Scenario", "load_scenario", "mule_names", "sensor_names"]

T = TypeVar("T")

_PROTOCOLS = {"cet": CET, "dg": DG, "epidemic": Epidemic}
_KEYS = ("seed", "until_death", "field", "radio", "sensors", "traces", *_PROTOCOLS)
_MOST = {"cells": 10_000, "sensors": 1_000_000, "mules": 10_000, "K": 1_000_000, "values": 1_000_000}
_POSITIVE = {
    "side",
    "cells",
    "sensors",
    "mules",
    "gap_s",
    "duration_s",
    "speed_max",
    "values",
    "event_bits",
    "rate",
    "K",
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is to be simulated, with each of its protocols."""

    world: World
    protocols: tuple[Protocol, ...]
    radio: Radio
    until_death: bool
    contacts: Contacts | None


def mule_names(count: int) -> list[str]:
    """In traces."""
    return [f"m{number}" for number in range(count)]


def sensor_names(count: int) -> list[str]:
    """In traces."""
    return [f"s{number}" for number in range(count)]


def load_scenario(path: Path) -> Scenario:
    """Raises InputError with the key for what is wrong in the file, and with the line for what is in its traces."""
    if not path.is_file():
        raise InputError("there is no such file", where=str(path), hint="there are some fields in examples/fields")
    try:
        with refusals_named(path), path.open("rb") as file:
            content = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"this is no TOML: {error}", where=str(path), hint="see examples/fields") from error
    _check_keys(path, "", content, _KEYS)
    seed = content.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise InputError(f"{seed!r} is no seed", where=f"{path}: seed", hint="a whole number, 0 or more")
    until_death = content.get("until_death", False)
    if not isinstance(until_death, bool):
        raise InputError("it is true or false", where=f"{path}: until_death", hint="without quotes")
    points = _points(path, content)
    field = _built(
        path, "field", Field, {**_table(path, content, "field"), **({"sensors": len(points)} if points else {})}
    )
    _check_field(path, field, points)
    world = draw(field, seed)
    if points:
        x, y = np.array(points, float).T
        world = world._replace(x=x, y=y)
    protocols: tuple[Protocol, ...] = tuple(
        _built(path, name, kind, _table(path, content, name)) for name, kind in _PROTOCOLS.items() if name in content
    )
    world, contacts = _traced(path, world, _table(path, content, "traces"))
    radio = _built(path, "radio", Radio, _table(path, content, "radio"))
    return Scenario(world, protocols or (CET(), DG()), radio, until_death, contacts)


def _table(path: Path, content: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise InputError("this is no table", where=f"{path}: {name}", hint=f"write [{name}] on a line of its own")
    return table


def _check_keys(path: Path, table: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in given:
        if key not in known:
            raise InputError("unknown key", where=f"{path}: {table}{key}", hint=f"known are: {', '.join(known)}")


def _built(path: Path, table: str, kind: type[T], given: Mapping[str, Any]) -> T:
    hints = get_type_hints(kind)
    known = tuple(field.name for field in fields(kind))  # type: ignore[arg-type]
    _check_keys(path, f"{table}.", given, known)
    return kind(**{key: _value(f"{path}: {table}.{key}", key, hints[key], value) for key, value in given.items()})


def _value(where: str, key: str, wanted: Any, value: Any) -> Any:
    if get_origin(wanted) is Literal:
        if value not in get_args(wanted):
            raise InputError(
                f"{value!r} is none of its values", where=where, hint=f"one of: {', '.join(get_args(wanted))}"
            )
        return value
    if wanted is bool:
        if not isinstance(value, bool):
            raise InputError(f"{value!r} is not true or false", where=where, hint="without quotes")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise InputError(f"{value!r} is no number", where=where, hint="such as 15")
    if wanted is int and not isinstance(value, int):
        raise InputError(f"{value!r} is no whole number", where=where, hint="such as 15")
    if value < 0 or (key in _POSITIVE and value == 0):
        raise InputError(
            f"{value!r} is too small", where=where, hint="more than 0" if key in _POSITIVE else "0 or more"
        )
    if value > _MOST.get(key, math.inf):
        raise InputError(f"{value!r} is too large", where=where, hint=f"at most {_MOST[key]:,}")
    return value


def _check_field(path: Path, field: Field, points: list[list[float]]) -> None:
    for key in ("side", "gap_s", "duration_s", "silence_s", "speed_min", "speed_max", "pause_max_s", "event_bits"):
        if not math.isfinite(getattr(field, key)):
            raise InputError("it is infinite", where=f"{path}: field.{key}", hint="only the rate may be")
    if field.speed_min > field.speed_max:
        raise InputError("it is above speed_max", where=f"{path}: field.speed_min", hint="swap the two")
    births = field.sensors * field.duration_s / field.gap_s
    if births > 50_000_000:
        raise InputError(
            f"about {births:,.0f} events would be born", where=f"{path}: field.gap_s", hint="at most 50 million"
        )
    for number, (x, y) in enumerate(points):
        if not (0 <= x <= field.side and 0 <= y <= field.side):
            hint = f"the area is {field.side:g} wide"
            raise InputError(f"({x:g}, {y:g}) is outside", where=f"{path}: sensors.points[{number}]", hint=hint)


def _points(path: Path, content: Mapping[str, Any]) -> list[list[float]]:
    table = _table(path, content, "sensors")
    _check_keys(path, "sensors.", table, ("points",))
    points = table.get("points", [])
    is_list = isinstance(points, list) and all(isinstance(point, list) and len(point) == 2 for point in points)
    if not is_list or not all(isinstance(at, int | float) and math.isfinite(at) for point in points for at in point):
        raise InputError(
            "this is no list of points", where=f"{path}: sensors.points", hint="such as [[10, 20], [30, 40]]"
        )
    return [[float(x), float(y)] for x, y in points]


def _traced(path: Path, world: World, table: Mapping[str, Any]) -> tuple[World, Contacts | None]:
    _check_keys(path, "traces.", table, ("movement", "contacts"))
    for key, name in table.items():
        if not isinstance(name, str):
            raise InputError(f"{name!r} is no file name", where=f"{path}: traces.{key}", hint="a text in quotes")
    field = world.field
    mules = {name: number for number, name in enumerate(mule_names(field.mules))}
    sensors = {name: number for number, name in enumerate(sensor_names(field.sensors))}
    if "movement" in table:
        file = path.parent / table["movement"]
        world = world._replace(legs=read_movement(file, mules, side=field.side, duration_s=field.duration_s))
    if "contacts" in table:
        return world, read_contacts(path.parent / table["contacts"], mules, sensors, duration_s=field.duration_s)
    return world, None
