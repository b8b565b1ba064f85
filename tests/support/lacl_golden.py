"""Golden files: texts and their expected results.

Each pair is a text, a line `----`, its result, and a line `====`. The result is the canonical form, or the error as the
user sees it. In `keys.txt` it is the key of the source expression, in `explain.txt` the explanation as JSON.
Coordinates are planar in `planar.txt` and geographic elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import shapely

from roamcast.lacl import LaclError, check, explain, parse, to_text
from roamcast.places import Places
from roamcast.space import GEOGRAPHIC, PLANAR

NAMES = ("room A", "stage", "hall 3b of the town-house", "and so on", "nearest", "box")
PLACES = Places({name: shapely.box(0, 0, 1, 1) for name in NAMES})


def pairs(file: Path) -> Iterator[tuple[str, str]]:
    """The text and the result of each pair; line endings are preserved."""
    *whole, rest = file.read_bytes().decode().split("\n====\n")
    if rest:
        raise ValueError(f"{file.name} does not end with ====")
    for pair in whole:
        text, _, result = pair.partition("\n----\n")
        yield text, result


def result(topic: str, text: str) -> str:
    """Compute the result for a text."""
    try:
        query = check(parse(text), places=PLACES, space=PLANAR if topic == "planar" else GEOGRAPHIC)
    except LaclError as error:
        return str(error)
    if topic == "keys":
        return query.expression_key
    if topic == "explain":
        return orjson.dumps(explain(query), option=orjson.OPT_INDENT_2).decode()
    return to_text(query)
