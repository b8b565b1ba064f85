"""`roamcast lacl check` and `roamcast lacl explain`."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from roamcast.cli.inspect import lacl
from roamcast.errors import InputError
from roamcast.lacl import MAX_BYTES, LaclError

NEAREST = "Select Where &location in nearest"
ROOM = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "properties": {"name": "room A"},
            "geometry": {"type": "Polygon", "coordinates": [[[0, 0], [500, 0], [500, 500], [0, 0]]]},
        }
    ],
}


def run(*arguments: str, text: str | bytes | None = None) -> str:
    """Run the command and return its output. Exceptions propagate; `main` turns them into exit codes."""
    return CliRunner().invoke(lacl, arguments, input=text, catch_exceptions=False).stdout


def test_check_prints_the_canonical_form() -> None:
    """The query is an argument."""
    assert run("check", "-e", "select where &location IN nearest") == f"{NEAREST}\n"


def test_check_reads_standard_input() -> None:
    """A byte order mark is ignored."""
    assert run("check", "-", text=f"\ufeff{NEAREST}\r\n".encode()) == f"{NEAREST}\n"


def test_check_reads_a_file(tmp_path: Path) -> None:
    """A file has one query."""
    file = tmp_path / "query.lacl"
    file.write_text(f"-- mine\n{NEAREST}\n")
    assert run("check", str(file)) == f"{NEAREST}\n"


def test_explain_prints_json() -> None:
    """The object has the documented keys."""
    explanation = orjson.loads(run("explain", "-e", f"{NEAREST} and &a = 1"))
    assert explanation["plan"] == "bind"
    assert {"select", "source_condition", "location", "on", "every", "life_control", "terms"} < set(explanation)


def test_places_are_read_from_a_file(tmp_path: Path) -> None:
    """Coordinates are in the given space."""
    file = tmp_path / "rooms.geojson"
    file.write_bytes(orjson.dumps(ROOM))
    options = ["--places", str(file), "--space", "planar"]
    assert run("check", "-e", f"{NEAREST} Life-control #location in room A", *options)
    with pytest.raises(LaclError, match="no place named 'room B'"):
        run("check", "-e", f"{NEAREST} Life-control #location in room B", *options)


def test_coordinates_are_geographic_by_default() -> None:
    """A box in metres needs planar space."""
    text = "Select all() Where &location in box(0, 0, 500, 500)"
    assert run("check", "-e", text, "--space", "planar") == f"{text}\n"
    with pytest.raises(LaclError, match="outside -180 to 180"):
        run("check", "-e", text)


@pytest.mark.parametrize(
    "arguments", [["check"], ["check", "file", "-e", "text"], ["check", "no/such/file"], ["check", "."]]
)
def test_a_missing_or_ambiguous_query_is_an_error(arguments: list[str]) -> None:
    """No query, two queries, or a file that cannot be read."""
    with pytest.raises(InputError) as caught:
        run(*arguments)
    assert caught.value.hint


def test_input_that_is_not_utf8_is_refused() -> None:
    """The error says so."""
    with pytest.raises(InputError, match="not UTF-8"):
        run("check", "-", text=b"Select \xff")


def test_a_file_that_is_too_long_is_refused() -> None:
    """Also if the limit splits a character."""
    for shift in range(4):
        with pytest.raises(LaclError, match="longer than"):
            run("check", "-", text=b"-" * (MAX_BYTES - shift) + "🔥".encode() * 9)
