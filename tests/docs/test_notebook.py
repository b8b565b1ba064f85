"""The notebook in examples/notebooks: it runs, it prints what it shows, and its figures are right."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any, NamedTuple

import nbformat
import numpy as np
import pytest
import shapely
from notebooks import run_notebook, texts
from pages import ROOT

pytestmark = pytest.mark.e2e

FOLDER = ROOT / "examples" / "notebooks"
FILE = FOLDER / "whose-earthquake.ipynb"
STORED = nbformat.read(FILE, as_version=4)
PICTURE = "image/png"

RESULTS = """
import json
told_rows = sorted(map(list, told.select("state", "wants", "id").collect()))
print(json.dumps({"compared": compared.reset_index().values.tolist(), "told": told_rows}))
"""


class Reference(NamedTuple):
    """The week, without Spark and without roamcast: what is in each state, and in its bounding box."""

    events: list[dict[str, Any]]
    is_felt: Any
    borders: dict[str, Any]
    in_border: dict[str, Any]
    in_box: dict[str, Any]


@pytest.fixture(scope="module")
def reference() -> Reference:
    files = sorted((FOLDER / "data" / "earthquakes").iterdir())
    events = [json.loads(line) for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]
    points = shapely.points([event["geometry"]["coordinates"][:2] for event in events])
    is_felt = np.array([(event["properties"]["felt"] or 0) > 0 for event in events])
    features = json.loads((FOLDER / "data" / "states.geojson").read_text())["features"]
    borders = {
        feature["properties"]["name"]: shapely.buffer(shapely.from_geojson(json.dumps(feature["geometry"])), 0)
        for feature in features
    }
    in_border = {name: shapely.covers(border, points) for name, border in borders.items()}
    in_box = {name: shapely.covers(shapely.box(*border.bounds), points) for name, border in borders.items()}
    return Reference(events, is_felt, borders, in_border, in_box)


@pytest.fixture(scope="module")
def run() -> nbformat.NotebookNode:
    return run_notebook(FILE, RESULTS)


@pytest.fixture(scope="module")
def results(run: nbformat.NotebookNode) -> dict[str, Any]:
    results: dict[str, Any] = json.loads(texts(run.cells[-2])[0])
    return results


def test_it_prints_what_it_shows(run: nbformat.NotebookNode) -> None:
    """Its outputs are stored: `tests/support/notebooks.py` renews them."""
    cells = [*run.cells[:-2], run.cells[-1]]
    assert [texts(cell) for cell in cells] == [texts(cell) for cell in STORED.cells]
    outputs = [output for cell in run.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum(PICTURE in output.get("data", {}) for output in outputs) == 3


def test_links_lead_to_files() -> None:
    links = [link for cell in STORED.cells for link in re.findall(r"\]\(([^)]+)\)", cell.source)]
    assert links
    assert [link for link in links if not (FOLDER / link).exists()] == []


def test_matches_are_those_of_the_borders(reference: Reference, results: dict[str, Any]) -> None:
    """For each state: how many events are in it, how many of them were felt; the same for what is only in its box."""
    expected = []
    for name in sorted(reference.borders):
        inside = reference.in_border[name]
        only_in_box = reference.in_box[name] & ~inside
        if reference.in_box[name].any():
            masks = (inside, inside & reference.is_felt, only_in_box, only_in_box & reference.is_felt)
            expected.append([name, *(int(mask.sum()) for mask in masks)])
    assert results["compared"] == expected


def test_alerts_are_those_of_regions_and_terms(reference: Reference, results: dict[str, Any]) -> None:
    """Each office is told of what is in its state and felt, strong, or not an earthquake; and of nothing else."""
    expected = []
    for name, inside in reference.in_border.items():
        for at in np.flatnonzero(inside):
            properties = reference.events[at]["properties"]
            wants = {
                "felt": reference.is_felt[at],
                "strong": properties["mag"] >= 2.5,
                "blast": properties["type"] != "earthquake",
            }
            expected += [[name, want, reference.events[at]["id"]] for want, is_so in wants.items() if is_so]
    assert results["told"] == sorted(expected)


def test_figures_in_the_text_are_right(reference: Reference) -> None:
    """Which earthquakes are described by another state than theirs, and how far from its border they are."""
    distances = []
    for name, inside in reference.in_border.items():
        for event in (reference.events[at] for at in np.flatnonzero(inside)):
            named = event["properties"]["place"].rpartition(", ")[2].replace("CA", "California")
            if named != name and named in reference.borders:
                point = shapely.Point(event["geometry"]["coordinates"])
                scale = [np.cos(np.radians(point.y)), 1]
                near, at = (
                    shapely.transform(each, lambda xy, scale=scale: xy * scale)
                    for each in (reference.borders[named], point)
                )
                distances.append(shapely.distance(near, at) * 111.2)
    assert (len(distances), round(float(np.median(distances)))) == (32, 4)
