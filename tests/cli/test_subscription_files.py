"""Files of subscriptions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import invoke, invoke_json
from nodes import RunningNode, journalled
from typer.testing import CliRunner

from roamcast.cli import app
from roamcast.errors import InputError
from roamcast.lacl import LaclError

ROWS: list[Any] = [
    {"id": "a", "box": [0, 0, 1, 1], "terms": ["fire"]},
    {"lacl": "Select Where &location in nearest"},
    {"terms": ["smoke"]},
]


def write(path: Path, *rows: Any) -> str:
    path.write_text("\n\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return str(path)


def fail(*words: str) -> str:
    """Run a command that reports refused rows and exits with 1; what it prints."""
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 1
    return result.output


def subscriptions() -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = invoke_json("subscriptions", "--subscriber", "anna")["subscriptions"]
    return listed


def test_a_file_is_added_once(node: RunningNode, tmp_path: Path) -> None:
    """Also if the command is repeated, and rows have no ids."""
    file = write(tmp_path / "rows.ndjson", *ROWS)
    command = ("subscribe", "--subscriber", "anna", "--register", "--file", file)
    assert invoke_json(*command) == {"added": 3, "existing": 0, "refused": 0}
    assert invoke_json(*command) == {"added": 0, "existing": 3, "refused": 0}
    assert len(subscriptions()) == 3


@pytest.mark.parametrize(
    ("bad", "expected", "where"),
    [
        ("{", InputError, "line 5"),
        ({"terms": [""]}, InputError, "line 5: terms"),
        ({"terms": [1]}, InputError, "line 5: terms[0]"),
        ({"box": [0, 0, 1, 91]}, InputError, "line 5: box[3]"),
        ({"box": [2, 0, 1, 1]}, InputError, "line 5: box[0]"),
        ({"lacl": "Select all() Where &location in box(0, 0, 1, 91)"}, LaclError, "line 5: line 1, column 33"),
        ({"lacl": "Select"}, LaclError, "line 5: line 1, column 7"),
    ],
)
def test_nothing_is_added_if_a_line_is_invalid(
    node: RunningNode, tmp_path: Path, bad: Any, expected: type[InputError], where: str
) -> None:
    """With --on-error skip, the others are."""
    invoke("register", "subscriber", "anna")
    file = write(tmp_path / "rows.ndjson", ROWS[0], ROWS[1], bad)
    with pytest.raises(expected) as error:
        invoke("subscribe", "--subscriber", "anna", "--file", file)
    assert str(error.value.where).endswith(where)
    assert not journalled(node.data)
    refused = fail("subscribe", "--subscriber", "anna", "--file", file, "--on-error", "skip")
    assert f"rows.ndjson, {where}" in refused
    assert len(subscriptions()) == 2


def write_table(path: Path, table: pa.Table) -> str:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        new = pa.ipc.new_file if path.suffix == ".feather" else pa.ipc.new_stream
        with new(path, table.schema) as writer:
            writer.write_table(table)
    return str(path)


@pytest.mark.parametrize("suffix", [".arrow", ".feather", ".parquet"])
def test_a_table_is_added_once(node: RunningNode, tmp_path: Path, suffix: str) -> None:
    """In several requests."""
    count = 5_001
    terms = pa.array([["fire"]] * count)
    file = write_table(tmp_path / f"rows{suffix}", pa.table({"terms": terms, "box": [[0.0, 0.0, 1.0, 1.0]] * count}))
    command = ("subscribe", "--subscriber", "anna", "--register", "--file", file)
    assert invoke_json(*command) == {"added": count, "existing": 0, "refused": 0}
    assert invoke_json(*command) == {"added": 0, "existing": count, "refused": 0}


@pytest.mark.parametrize(
    ("table", "where", "message"),
    [
        ({"terms": [["a"], [""]]}, "row 2: terms", "characters"),
        ({"lacl": ["Select"]}, "row 1: line 1, column 7", "Where"),
        ({"term": [["a"]]}, "rows.arrow", "unknown column 'term'"),
        ({"terms": ["a"]}, "rows.arrow, column terms", "the column is string"),
    ],
)
def test_nothing_is_added_if_a_row_of_a_table_is_invalid(
    node: RunningNode, tmp_path: Path, table: dict[str, Any], where: str, message: str
) -> None:
    invoke("register", "subscriber", "anna")
    file = write_table(tmp_path / "rows.arrow", pa.table(table))
    with pytest.raises(InputError, match=message) as error:
        invoke("subscribe", "--subscriber", "anna", "--file", file)
    assert str(error.value.where).endswith(where)
    assert not journalled(node.data)


def test_a_file_that_is_no_table_is_refused(node: RunningNode, tmp_path: Path) -> None:
    for suffix in (".arrow", ".parquet"):
        (tmp_path / f"rows{suffix}").write_text("{}")
        with pytest.raises(InputError, match="cannot be read"):
            invoke("subscribe", "--subscriber", "anna", "--register", "--file", str(tmp_path / f"rows{suffix}"))


def test_many_are_removed(node: RunningNode, tmp_path: Path) -> None:
    """An unknown id is reported, and the others are removed."""
    invoke("subscribe", "--subscriber", "anna", "--register", "--file", write(tmp_path / "rows.ndjson", *ROWS))
    ids = "\n".join(one["id"] for one in subscriptions())
    (tmp_path / "ids.txt").write_text(ids + "\nunknown\n")
    assert "unknown" in fail("unsubscribe", "--subscriber", "anna", "--file", str(tmp_path / "ids.txt"))
    assert subscriptions() == []


def test_a_subscription_is_replaced(node: RunningNode) -> None:
    """It keeps its id."""
    invoke("subscribe", "--subscriber", "anna", "--register", "--term", "fire", "--id", "q")
    assert invoke("subscribe", "--subscriber", "anna", "--id", "q", "--replace", "--term", "smoke").strip() == "q"
    assert [one["lacl"] for one in subscriptions()] == ['Select all() Where &terms has ("smoke")']


@pytest.mark.parametrize(
    "command",
    [
        ("subscribe", "--subscriber", "anna", "--file", "missing.ndjson"),
        ("subscribe", "--subscriber", "anna", "--file", "-", "--term", "fire"),
        ("subscribe", "--subscriber", "anna", "--replace", "--term", "fire"),
        ("unsubscribe", "--subscriber", "anna"),
        ("unsubscribe", "--subscriber", "anna", "q", "--file", "ids.txt"),
    ],
)
def test_contradictory_options_are_refused(node: RunningNode, command: tuple[str, ...]) -> None:
    invoke("register", "subscriber", "anna")
    with pytest.raises(InputError):
        invoke(*command)
