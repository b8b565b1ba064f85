"""`roamcast lacl check` and `roamcast lacl explain`."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from roamcast.cli.lacl import lacl
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


def printed(*arguments: str, text: str | bytes | None = None) -> str:
    """What the command prints; what it raises is for `main` to tell, with exit code 2."""
    return CliRunner().invoke(lacl, arguments, input=text, catch_exceptions=False).stdout


def test_check_prints_the_canonical_form() -> None:
    """From the command line."""
    assert printed("check", "-e", "select where &location IN nearest") == f"{NEAREST}\n"


def test_check_reads_standard_input() -> None:
    """With a byte order mark and all."""
    assert printed("check", "-", text=f"\ufeff{NEAREST}\r\n".encode()) == f"{NEAREST}\n"


def test_check_reads_a_file(tmp_path: Path) -> None:
    """One query to a file."""
    file = tmp_path / "query.lacl"
    file.write_text(f"-- mine\n{NEAREST}\n")
    assert printed("check", str(file)) == f"{NEAREST}\n"


def test_explain_prints_json() -> None:
    """With the keys that programs rely on."""
    explanation = orjson.loads(printed("explain", "-e", f"{NEAREST} and &a = 1"))
    assert explanation["plan"] == "bind"
    assert {"select", "source_expression", "location", "on", "every", "life_control", "terms"} < set(explanation)


def test_places_are_those_of_the_file(tmp_path: Path) -> None:
    """In the space that is named."""
    file = tmp_path / "rooms.geojson"
    file.write_bytes(orjson.dumps(ROOM))
    options = ["--places", str(file), "--space", "planar"]
    assert printed("check", "-e", f"{NEAREST} Life-control #location in room A", *options)
    with pytest.raises(LaclError, match="no place named 'room B'"):
        printed("check", "-e", f"{NEAREST} Life-control #location in room B", *options)


def test_coordinates_are_geographic_unless_said_otherwise() -> None:
    """A box in metres needs planar space."""
    text = "Select all() Where &location in box(0, 0, 500, 500)"
    assert printed("check", "-e", text, "--space", "planar") == f"{text}\n"
    with pytest.raises(LaclError, match="outside -180 to 180"):
        printed("check", "-e", text)


@pytest.mark.parametrize(
    "arguments", [["check"], ["check", "file", "-e", "text"], ["check", "no/such/file"], ["check", "."]]
)
def test_without_a_query_the_command_says_so(arguments: list[str]) -> None:
    """None, two, or one that cannot be read."""
    with pytest.raises(InputError) as caught:
        printed(*arguments)
    assert caught.value.hint


def test_what_is_no_text_is_refused() -> None:
    """With the byte that shows it."""
    with pytest.raises(InputError, match="not UTF-8"):
        printed("check", "-", text=b"Select \xff")


def test_a_file_that_is_too_long_is_refused() -> None:
    """However its last character is cut."""
    for shift in range(4):
        with pytest.raises(LaclError, match="longer than"):
            printed("check", "-", text=b"-" * (MAX_BYTES - shift) + "🔥".encode() * 9)
