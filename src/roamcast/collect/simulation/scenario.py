"""Reads a field scenario from a TOML file, for `roamcast simulate FIELD.toml`."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from roamcast.collect.protocol.energy import Radio
from roamcast.collect.protocol.rules import CET, DG, Epidemic, Protocol, SprayAndWait
from roamcast.collect.simulation.contacts import Contacts
from roamcast.collect.simulation.field import Field, FieldWorld, draw_world
from roamcast.collect.simulation.traces import read_contacts, read_movement
from roamcast.durable import storage_errors
from roamcast.errors import InputError

__all__ = ["FieldScenario", "load_scenario", "mule_names", "sensor_names"]

T = TypeVar("T")

_PROTOCOLS = {"cet": CET, "dg": DG, "epidemic": Epidemic, "spray_and_wait": SprayAndWait}
_KEYS = ("seed", "until_death", "field", "radio", "sensors", "traces", *_PROTOCOLS)
_MAXIMA: Final = {
    "side": 1e7, "cells": 3_000, "sensors": 1_000_000, "mules": 10_000, "gap_s": 1e9, "duration_s": 1e9,
    "silence_s": 1e9, "speed_min": 1e6, "speed_max": 1e6, "pause_max_s": 1e9, "values": 1_000, "event_bits": 1e12,
    "rate": 1e6, "K": 1_000_000, "L": 1_000_000, "alpha": 1e9, "beta": 1e12, "theta": 1e12, "gamma": 1e9,
    "quiet_s": 1e9, "initial_j": 1e12, "e_elec": 1, "e_fs": 1,
}  # fmt: skip
_MAY_BE_INFINITE: Final = {"rate", "K", "alpha", "beta", "theta", "gamma"}
_MAX_COUNT: Final = 50_000_000
_MAX_COORDINATE: Final = 1e300
_POSITIVE = {
    "side", "cells", "sensors", "mules", "gap_s", "duration_s", "speed_max", "values", "event_bits", "rate", "K", "L",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FieldScenario:
    """A world and the protocols to simulate in it."""

    world: FieldWorld
    protocols: tuple[Protocol, ...]
    radio: Radio
    until_death: bool
    contacts: Contacts | None


def mule_names(count: int) -> list[str]:
    """The names of the mules in traces."""
    return [f"m{number}" for number in range(count)]


def sensor_names(count: int) -> list[str]:
    """The names of the sensors in traces."""
    return [f"s{number}" for number in range(count)]


def load_scenario(path: Path) -> FieldScenario:
    """Read a scenario file. Raises InputError, which names the key in the file or the line in a trace."""
    if not path.is_file():
        raise InputError("file not found", where=str(path), hint="see examples/fields for examples")
    try:
        with storage_errors(path), path.open("rb") as file:
            content = tomllib.load(file)
    except ValueError as error:  # also for invalid UTF-8, and for numbers with thousands of digits
        raise InputError(f"invalid TOML: {error}", where=str(path), hint="see examples/fields") from error
    _check_keys(path, "", content, _KEYS)
    seed = content.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise InputError(f"invalid seed {seed!r}", where=f"{path}: seed", hint="use an integer, 0 or more")
    until_death = content.get("until_death", False)
    if not isinstance(until_death, bool):
        raise InputError("not a boolean", where=f"{path}: until_death", hint="use true or false, without quotes")
    points = _points(path, content)
    field = _build(path, "field", Field, _with_points(path, _table(path, content, "field"), points))
    _check_field(path, field, points)
    world = draw_world(field, seed)
    if points:
        x, y = np.array(points, float).T
        world = world._replace(x=x, y=y)
    protocols: tuple[Protocol, ...] = tuple(
        _build(path, name, kind, _table(path, content, name)) for name, kind in _PROTOCOLS.items() if name in content
    )
    world, contacts = _apply_traces(path, world, _table(path, content, "traces"))
    radio = _build(path, "radio", Radio, _table(path, content, "radio"))
    return FieldScenario(world, protocols or (CET(), DG()), radio, until_death, contacts)


def _table(path: Path, content: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise InputError("not a table", where=f"{path}: {name}", hint=f"write [{name}] on its own line")
    return table


def _check_keys(path: Path, table: str, values: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in values:
        if key not in known:
            raise InputError("unknown key", where=f"{path}: {table}{key}", hint=f"known keys: {', '.join(known)}")


def _build(path: Path, table: str, kind: type[T], values: Mapping[str, Any]) -> T:
    hints = get_type_hints(kind)
    known = tuple(field.name for field in fields(kind))  # type: ignore[arg-type]
    _check_keys(path, f"{table}.", values, known)
    return kind(**{key: _value(f"{path}: {table}.{key}", key, hints[key], value) for key, value in values.items()})


def _value(where: str, key: str, type_: Any, value: Any) -> Any:
    if get_origin(type_) is Literal:
        if value not in get_args(type_):
            raise InputError(f"invalid value {value!r}", where=where, hint=f"one of: {', '.join(get_args(type_))}")
        return value
    if type_ is bool:
        if not isinstance(value, bool):
            raise InputError(f"{value!r} is not a boolean", where=where, hint="use true or false, without quotes")
        return value
    if not _is_number(value):
        raise InputError(f"{value!r} is not a number", where=where, hint="for example 15")
    is_unlimited = value == math.inf and key in _MAY_BE_INFINITE and type_ is float
    if (type_ is int or key == "K") and not isinstance(value, int) and not is_unlimited:
        raise InputError(f"{value!r} is not an integer", where=where, hint="for example 15")
    if value < 0 or (key in _POSITIVE and value == 0):
        hint = "must be greater than 0" if key in _POSITIVE else "must be 0 or more"
        raise InputError(f"{value!r} is too small", where=where, hint=hint)
    if value > _MAXIMA[key] and not is_unlimited:
        raise InputError(f"{value!r} is too large", where=where, hint=f"the maximum is {_MAXIMA[key]:,.0f}")
    return value


def _check_field(path: Path, field: Field, points: list[list[float]]) -> None:
    if field.speed_min > field.speed_max:
        raise InputError("speed_min is greater than speed_max", where=f"{path}: field.speed_min", hint="swap them")
    legs = field.duration_s / (field.side / field.speed_max + field.pause_max_s)
    lines = field.duration_s * field.speed_max * field.cells / field.side
    for key, count, what in (
        ("cells", field.sensors**2 * min(1.0, 9 / field.cells**2), "pairs of sensors in reach of each other"),
        ("gap_s", field.sensors * field.duration_s / field.gap_s, "events in all"),
        ("speed_max", field.mules * (legs + lines), "entries of mules into cells"),
    ):
        if count > _MAX_COUNT:
            hint = f"the maximum is {_MAX_COUNT:,}"
            message = f"the field is too large: about {count:,.0f} {what}"
            raise InputError(message, where=f"{path}: field.{key}", hint=hint)
    for number, (x, y) in enumerate(points):
        if not (0 <= x <= field.side and 0 <= y <= field.side):
            hint = f"the side of the area is {field.side:g}"
            message = f"the point ({x:g}, {y:g}) is outside the area"
            raise InputError(message, where=f"{path}: sensors.points[{number}]", hint=hint)


def _points(path: Path, content: Mapping[str, Any]) -> list[list[float]]:
    table = _table(path, content, "sensors")
    _check_keys(path, "sensors.", table, ("points",))
    if "points" not in table:
        return []
    points = table["points"]
    pairs = points if isinstance(points, list) else []
    are_points = all(isinstance(pair, list) and len(pair) == 2 and all(map(_is_number, pair)) for pair in pairs)
    if not pairs or not are_points or any(abs(value) > _MAX_COORDINATE for pair in pairs for value in pair):
        raise InputError(
            "not a list of points", where=f"{path}: sensors.points", hint="for example [[10, 20], [30, 40]]"
        )
    return [[float(x), float(y)] for x, y in pairs]


def _is_number(value: object) -> bool:
    if isinstance(value, float):
        return not math.isnan(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _with_points(path: Path, table: Mapping[str, Any], points: list[list[float]]) -> Mapping[str, Any]:
    if not points:
        return table
    if table.get("sensors", len(points)) != len(points):
        hint = f"remove it; there are {len(points)} points"
        raise InputError("does not match the number of points", where=f"{path}: field.sensors", hint=hint)
    return {**table, "sensors": len(points)}


def _apply_traces(path: Path, world: FieldWorld, table: Mapping[str, Any]) -> tuple[FieldWorld, Contacts | None]:
    _check_keys(path, "traces.", table, ("movement", "contacts"))
    for key, name in table.items():
        if not isinstance(name, str):
            hint = "use a string in quotes"
            raise InputError(f"{name!r} is not a file name", where=f"{path}: traces.{key}", hint=hint)
    if len(table) > 1:
        hint = "contacts replace movement; remove one of the two"
        raise InputError("contacts and movement cannot be combined", where=f"{path}: traces.contacts", hint=hint)
    field = world.field
    mules = {name: number for number, name in enumerate(mule_names(field.mules))}
    sensors = {name: number for number, name in enumerate(sensor_names(field.sensors))}
    if "movement" in table:
        file = path.parent / table["movement"]
        world = world._replace(legs=read_movement(file, mules, side=field.side, duration_s=field.duration_s))
    if "contacts" in table:
        return world, read_contacts(path.parent / table["contacts"], mules, sensors, duration_s=field.duration_s)
    return world, None
