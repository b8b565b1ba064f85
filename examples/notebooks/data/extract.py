"""Make the files of this folder from two npm packages: see README.md.

npm pack vega-datasets@3.2.1 && npm pack us-atlas@3.0.1
python extract.py vega-datasets-3.2.1.tgz us-atlas-3.0.1.tgz
"""

from __future__ import annotations

import gzip
import json
import sys
import tarfile
from collections import defaultdict
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, cast

FOLDER = Path(__file__).parent
PROPERTIES = ("mag", "place", "time", "felt", "type")


def read_json(archive: str, name: str) -> Any:
    with tarfile.open(archive) as package:
        return json.load(cast("IO[bytes]", package.extractfile(name)))


def line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def write_earthquakes(feed: Any) -> None:
    """One file for each day (UTC) of the feed, oldest event first, with fewer properties."""
    days = defaultdict(list)
    for feature in sorted(feed["features"], key=lambda feature: feature["properties"]["time"]):
        feature["properties"] = {name: feature["properties"][name] for name in PROPERTIES}
        day = datetime.fromtimestamp(feature["properties"]["time"] / 1000, UTC).date()
        days[day].append(line(feature))
    folder = FOLDER / "earthquakes"
    folder.mkdir(exist_ok=True)
    for day, lines in days.items():
        text = "".join(f"{each}\n" for each in lines)
        (folder / f"{day}.ndjson.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def write_states(topology: Any) -> None:
    """TopoJSON to GeoJSON. The grid of the coordinates is 0.0009 degrees or more; no border is repaired."""
    scale, translate = topology["transform"]["scale"], topology["transform"]["translate"]

    def positions(steps: list[list[int]]) -> list[list[float]]:
        grid = zip(*(accumulate(axis) for axis in zip(*steps, strict=True)), strict=True)
        return [[round(at * scale[k] + translate[k], 4) for k, at in enumerate(point)] for point in grid]

    arcs = [positions(steps) for steps in topology["arcs"]]

    def ring(numbers: list[int]) -> list[list[float]]:
        parts = [arcs[number] if number >= 0 else arcs[~number][::-1] for number in numbers]
        return parts[0] + [position for part in parts[1:] for position in part[1:]]

    features = []
    for state in topology["objects"]["states"]["geometries"]:
        is_single = state["type"] == "Polygon"
        polygons = [[ring(numbers) for numbers in rings] for rings in ([state["arcs"]] if is_single else state["arcs"])]
        geometry = {"type": state["type"], "coordinates": polygons[0] if is_single else polygons}
        features.append(line({"type": "Feature", "properties": state["properties"], "geometry": geometry}))
    text = ",\n".join(features)
    (FOLDER / "states.geojson").write_text(f'{{"type":"FeatureCollection","features":[\n{text}\n]}}\n')


if __name__ == "__main__":
    write_earthquakes(read_json(sys.argv[1], "package/data/earthquakes.json"))
    write_states(read_json(sys.argv[2], "package/states-10m.json"))
