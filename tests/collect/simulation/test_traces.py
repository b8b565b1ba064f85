"""Reading and writing traces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fields import comparable

from roamcast.collect.protocol.rules import DG, Epidemic
from roamcast.collect.simulation.contacts import cell_entries, find_contacts
from roamcast.collect.simulation.field import Field, draw_world
from roamcast.collect.simulation.scenario import mule_names, sensor_names
from roamcast.collect.simulation.simulate import simulate
from roamcast.collect.simulation.traces import contact_lines, movement_lines, read_contacts, read_movement, write_lines
from roamcast.errors import InputError

FIELD = Field(side=100.0, cells=10, sensors=12, mules=3, gap_s=10.0, duration_s=120.0, silence_s=10.0, speed_max=6.0)
WORLD = draw_world(FIELD, 7)
MULES, SENSORS = mule_names(FIELD.mules), sensor_names(FIELD.sensors)
MULE_IDS = {name: number for number, name in enumerate(MULES)}
SENSOR_IDS = {name: number for number, name in enumerate(SENSORS)}


def movement(path: Path, text: str) -> object:
    path.write_text(text)
    return read_movement(path, MULE_IDS, side=100.0, duration_s=100.0)


def contacts(path: Path, text: str) -> object:
    path.write_text(text)
    return read_contacts(path, MULE_IDS, SENSOR_IDS, duration_s=100.0)


def test_contacts_survive_the_round_trip(tmp_path: Path) -> None:
    """Contacts written for ONE and read again are equal, bit for bit."""
    written = find_contacts(WORLD, cell_entries(FIELD, WORLD.legs))
    write_lines(tmp_path / "contacts.txt", contact_lines(written, MULES, SENSORS))
    again = read_contacts(tmp_path / "contacts.txt", MULE_IDS, SENSOR_IDS, duration_s=FIELD.duration_s)
    assert all(np.array_equal(a, b) for a, b in zip(written, again, strict=True))


def test_a_run_over_written_contacts_has_the_same_transfers(tmp_path: Path) -> None:
    """Epidemic needs contacts only: with the trace it makes the same transfers as with the geometry."""
    written = find_contacts(WORLD, cell_entries(FIELD, WORLD.legs))
    write_lines(tmp_path / "contacts.txt", contact_lines(written, MULES, SENSORS))
    again = read_contacts(tmp_path / "contacts.txt", MULE_IDS, SENSOR_IDS, duration_s=FIELD.duration_s)
    expected, actual = (comparable(simulate(WORLD, Epidemic(), contacts=c, log=True)) for c in (None, again))
    assert expected["transfers"] == actual["transfers"]


@pytest.mark.parametrize("header", ["100 900 1000 1100 -50 50", "# a comment\n100 900 1000 1100 -50 50 0 0"])
def test_minima_of_the_header_are_subtracted(tmp_path: Path, header: str) -> None:
    """From times and both coordinates, as ONE does."""
    legs = movement(tmp_path / "m", f"{header}\n110 m1 1005 -45\n120 m1 1015 -45\n")
    assert (legs.start.tolist(), legs.x1.tolist(), legs.y1.tolist()) == ([0, 10, 20], [5, 15, 15], [5, 5, 5])  # type: ignore[attr-defined]


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    """Spreadsheets write one."""
    legs = movement(tmp_path / "m", "\ufefftime,id,x,y\n0,m0,5,5\n")
    assert legs.x0.tolist() == [5]  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_csv", [True, False])
def test_movement_survives_the_round_trip(tmp_path: Path, is_csv: bool) -> None:
    """Movement written and read again gives the same deliveries."""
    lines = movement_lines(WORLD.legs, MULES, side=100.0, duration_s=FIELD.duration_s, is_csv=is_csv)
    write_lines(tmp_path / "movement", lines)
    legs = read_movement(tmp_path / "movement", MULE_IDS, side=100.0, duration_s=FIELD.duration_s)
    here, there = (simulate(world, DG(resend="once")) for world in (WORLD, WORLD._replace(legs=legs)))
    assert {tuple(row[1:3]) for row in here.delivered.tolist()} == {tuple(row[1:3]) for row in there.delivered.tolist()}


def test_a_mule_is_stationary_before_its_first_and_after_its_last_point(tmp_path: Path) -> None:
    """Its legs cover the whole duration."""
    legs = movement(tmp_path / "m", "10 m1 5 5\n20 m1 15 5\n")
    assert (legs.start.tolist(), legs.end.tolist()) == ([0, 10, 20], [10, 20, 100])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("0 m0 5\n", 1, "expected 4 columns, not 3"),
        ("0 100 0 100 0 100\n0 m0 five 5\n", 2, "'five' is not a number"),
        ("time,id,x,y\n0,m9,5,5\n", 2, "unknown id 'm9'"),
        ("5 m0 5 5\n4 m1 5 5\n", 2, "time 4 follows 5"),
        ("5 m0 5 5\n5 m0 6 5\n", 2, "two points"),
        ("5 m0 5 500\n", 1, "outside"),
        ("nan m0 5 5\n", 1, "'nan' is not a number"),
        ("-1 m0 5 5\n", 1, "negative time"),
        ("10 20 0 wide 0 100\n", 1, "'wide' is not a number"),
    ],
)
def test_errors_in_movement_name_the_line(tmp_path: Path, text: str, line: int, what: str) -> None:
    """The error says what is wrong and where."""
    with pytest.raises(InputError, match=rf"line {line}: .*{what}"):
        movement(tmp_path / "m", text)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("1 CONN m0 s0\n", 1, "not a contact"),
        ("1 CONN m0 s0 up\n0 CONN m1 s0 up\n", 2, "time 0 follows 1"),
        ("1 CONN m0 x7 up\n", 1, "unknown id 'x7'"),
        ("1 CONN m0 s0 down\n", 1, "not up"),
        ("-1 CONN m0 s0 up\n", 1, "negative time"),
        ("nan CONN m0 s0 up\n", 1, "'nan' is not a number"),
        ("1 CONN m0 s0 up\n2 CONN s0 m0 up\n", 2, "already up"),
    ],
)
def test_errors_in_contacts_name_the_line(tmp_path: Path, text: str, line: int, what: str) -> None:
    """The error says what is wrong and where."""
    with pytest.raises(InputError, match=rf"line {line}: .*{what}"):
        contacts(tmp_path / "c", text)


def test_adjacent_contacts_are_merged(tmp_path: Path) -> None:
    """A contact that ends and begins at the same time is one contact."""
    merged = contacts(tmp_path / "c", "1 CONN m0 s0 up\n5 CONN m0 s0 down\n5 CONN m0 s0 up\n9 CONN m0 s0 down\n")
    assert (merged.begin.tolist(), merged.end.tolist()) == ([1.0], [9.0])  # type: ignore[attr-defined]


@pytest.mark.parametrize(("read", "what"), [(movement, "no points"), (contacts, "no contact of a mule")])
@pytest.mark.parametrize("text", ["", "\n# nothing yet\n"])
def test_an_empty_trace_is_refused(tmp_path: Path, read: Callable[[Path, str], object], what: str, text: str) -> None:
    """The error names the file."""
    with pytest.raises(InputError, match=f"trace: .*{what}"):
        read(tmp_path / "trace", text)


def test_a_missing_trace_is_refused(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(InputError, match="nothing-here"):
        read_movement(tmp_path / "nothing-here", MULE_IDS, side=1.0, duration_s=1.0)
