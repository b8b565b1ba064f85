"""Reads and writes traces of movement and contacts, in the formats of the ONE simulator and as CSV.

- Movement for ONE's ExternalMovement: a first line `minTime maxTime minX maxX minY maxY`, then lines `time id x y`. The
  minima are subtracted from the values, as ONE does.
- Movement as CSV: a header `time,id,x,y`, then rows.
- Contacts for ONE's StandardEventsReader: lines `time CONN a b up` and `time CONN a b down`.

A mule moves in a straight line from point to point. Times do not decrease from line to line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from roamcast.collect.simulation.contacts import Contacts
from roamcast.collect.simulation.mobility import Legs
from roamcast.durable import storage_errors, write_atomic
from roamcast.errors import InputError

__all__ = ["contact_lines", "movement_lines", "read_contacts", "read_movement", "write_lines"]

_MOVEMENT_HINT = "expected: time id x y"
_HEADER_HINT = "expected a first line: minTime maxTime minX maxX minY maxY"
_CONTACT_HINT = "expected: time CONN a b up|down"


def read_movement(path: Path, mules: Mapping[str, int], *, side: float, duration_s: float) -> Legs:
    """Read the legs of the mules. Raises InputError, which names the line."""
    walks: list[list[tuple[float, float, float]]] = [[] for _ in mules]
    least, latest = (0.0, 0.0, 0.0), 0.0
    for at, (number, words) in enumerate(_lines(path, comma=True)):
        where = f"{path}, line {number}"
        if at == 0 and words == ["time", "id", "x", "y"]:
            continue
        if at == 0 and len(words) in (6, 8):  # ONE allows a third axis, and ignores it
            lowest = [_number(word, where, _HEADER_HINT) for word in words][:6:2]
            least = lowest[0], lowest[1], lowest[2]
            continue
        if len(words) != 4:
            raise InputError(f"expected 4 columns, not {len(words)}", where=where, hint=_MOVEMENT_HINT)
        time, x, y = (
            _number(words[column], where, _MOVEMENT_HINT) - low for column, low in zip((0, 2, 3), least, strict=True)
        )
        if words[1] not in mules:
            raise InputError(f"unknown id {words[1]!r}", where=where, hint=_known(mules))
        _check_time(time, latest, where)
        if not (0 <= x <= side and 0 <= y <= side):
            raise InputError(
                f"the point ({x:g}, {y:g}) is outside the area", where=where, hint=f"the side of the area is {side:g}"
            )
        latest = time
        walk = walks[mules[words[1]]]
        if walk and walk[-1][0] == time:
            raise InputError(f"two points of {words[1]!r} at the same time", where=where, hint="remove one of them")
        walk.append((time, x, y))
    legs = [row for mule, walk in enumerate(walks) for row in _legs(mule, walk, duration_s)]
    if not legs:
        raise InputError("the trace has no points", where=str(path), hint=_MOVEMENT_HINT)
    mule, *rest = (np.array(column, float) for column in zip(*legs, strict=True))
    return Legs(mule.astype(np.int32), *rest)


def read_contacts(path: Path, mules: Mapping[str, int], sensors: Mapping[str, int], *, duration_s: float) -> Contacts:
    """Read the contacts between mules and sensors; contacts between two mules or two sensors are ignored.

    A contact that is not ended lasts until `duration_s`. Raises InputError, which names the line.
    """
    up: dict[tuple[int, int], float] = {}
    contacts: list[tuple[int, float, int, float]] = []
    latest = 0.0
    for number, words in _lines(path):
        where = f"{path}, line {number}"
        if len(words) != 5 or words[1] != "CONN" or words[4] not in ("up", "down"):
            raise InputError("not a contact", where=where, hint=_CONTACT_HINT)
        time = _number(words[0], where, _CONTACT_HINT)
        _check_time(time, latest, where)
        latest = time
        for id in words[2:4]:
            if id not in mules and id not in sensors:
                raise InputError(f"unknown id {id!r}", where=where, hint=_known(mules, sensors))
        mule, sensor = words[2:4] if words[2] in mules else (words[3], words[2])
        if mule not in mules or sensor not in sensors:
            continue
        pair = mules[mule], sensors[sensor]
        if (words[4] == "up") == (pair in up):
            state = "already up" if pair in up else "not up"
            raise InputError(f"{mule} and {sensor} are {state}", where=where, hint="up and down must alternate")
        if words[4] == "up":
            up[pair] = time
        else:
            contacts.append((pair[0], up.pop(pair), pair[1], time))
    if not contacts and not up:
        hint = f"{_CONTACT_HINT}; {_known(mules, sensors)}"
        raise InputError("the trace has no contact of a mule with a sensor", where=str(path), hint=hint)
    contacts += [(mule, begin, sensor, duration_s) for (mule, sensor), begin in up.items()]
    rows = _merge_adjacent(row for row in contacts if row[1] < row[3])
    columns = zip(*rows, strict=True) if rows else ((), (), (), ())
    mule_, begin_, sensor_, end_ = columns
    return Contacts(
        np.array(mule_, np.int32), np.array(sensor_, np.int32), np.array(begin_, float), np.array(end_, float)
    )


def contact_lines(contacts: Contacts, mules: Sequence[str], sensors: Sequence[str]) -> Iterator[str]:
    """Lines for ONE, ordered by time; at the same time, ends before begins."""
    changes = [
        *((begin, 1, mule, sensor) for mule, sensor, begin, _ in zip(*map(_list, contacts), strict=True)),
        *((end, 0, mule, sensor) for mule, sensor, _, end in zip(*map(_list, contacts), strict=True)),
    ]
    for time, is_up, mule, sensor in sorted(changes):
        yield f"{time!r} CONN {mules[mule]} {sensors[sensor]} {'up' if is_up else 'down'}"


def movement_lines(legs: Legs, mules: Sequence[str], *, side: float, duration_s: float, is_csv: bool) -> Iterator[str]:
    """Lines for the waypoints of the mules, ordered by time."""
    points = set[tuple[float, int, float, float]]()
    for mule, start, arrive, end, x0, y0, x1, y1 in zip(*map(_list, legs), strict=True):
        points.add((start, mule, x0, y0))
        part = min(1.0, (end - start) / (arrive - start)) if arrive > start else 1.0
        points.add((min(arrive, end), mule, x0 + part * (x1 - x0), y0 + part * (y1 - y0)))
    yield "time,id,x,y" if is_csv else f"0 {duration_s!r} 0 {side!r} 0 {side!r}"
    separator = "," if is_csv else " "
    for time, mule, x, y in sorted(points):
        yield separator.join((repr(time), mules[mule], repr(x), repr(y)))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file atomically. Raises StorageError if writing fails."""
    write_atomic(path, "".join(f"{line}\n" for line in lines).encode(), durable=False)


def _list(column: Any) -> list[Any]:
    values: list[Any] = column.tolist()
    return values


def _merge_adjacent(rows: Iterable[tuple[int, float, int, float]]) -> list[tuple[int, float, int, float]]:
    """Merge contacts of a pair without a gap between them. Ordered by mule, begin, sensor."""
    by_pair: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for mule, begin, sensor, end in sorted(rows, key=lambda row: row[1]):
        spans = by_pair.setdefault((mule, sensor), [])
        if spans and spans[-1][1] == begin:
            spans[-1] = spans[-1][0], end
        else:
            spans.append((begin, end))
    return sorted((mule, begin, sensor, end) for (mule, sensor), spans in by_pair.items() for begin, end in spans)


def _legs(mule: int, walk: Sequence[tuple[float, float, float]], duration_s: float) -> Iterator[tuple[float, ...]]:
    """A leg between each two points. The mule stays at its first point before, and at its last point after."""
    if not walk:
        return
    first, last = walk[0], walk[-1]
    points = [(0.0, *first[1:])] if first[0] > 0 else []
    points += [*walk, (max(duration_s, last[0]), *last[1:])]
    for (start, x0, y0), (end, x1, y1) in pairwise(points):
        if start < min(end, duration_s):
            yield mule, start, end, min(end, duration_s), x0, y0, x1, y1


def _lines(path: Path, *, comma: bool = False) -> Iterator[tuple[int, list[str]]]:
    if not path.is_file():
        raise InputError("file not found", where=str(path), hint="paths of traces are relative to the scenario file")
    try:
        with storage_errors(path):
            text = path.read_text(encoding="utf-8-sig")  # some programs write a byte order mark
    except UnicodeDecodeError as error:
        raise InputError("not UTF-8", where=str(path), hint="traces are UTF-8 text") from error
    for number, line in enumerate(text.splitlines(), 1):
        words = (line.replace(",", " ") if comma else line).split()
        if words and not words[0].startswith("#"):
            yield number, words


def _check_time(time: float, latest: float, where: str) -> None:
    if time < 0:
        raise InputError(f"negative time {time:g}", where=where, hint="times must be 0 or more")
    if time < latest:
        raise InputError(f"time {time:g} follows {latest:g}", where=where, hint="sort the lines by time")


def _number(word: str, where: str, hint: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{word!r} is not a number", where=where, hint=hint)
    return value


def _known(*kinds: Mapping[str, int]) -> str:
    ranges = [f"{next(iter(ids))} to {next(reversed(ids))}" for ids in map(dict, kinds) if ids]
    return f"known ids: {' and '.join(ranges)}"
