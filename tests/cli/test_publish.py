"""`roamcast publish`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from commands import invoke, invoke_json
from event_rows import ipc_body, parquet_body
from nodes import RunningNode, journalled, running_node
from typer.testing import CliRunner

from roamcast.cli import app
from roamcast.errors import InputError


def test_event_is_published_from_options(node: RunningNode) -> None:
    """Including negative coordinates, terms and readings."""
    invoke("register", "source", "s")
    invoke("publish", "--source", "s", "--x", "-1.5", "--y", "-2", "--term", "a", "--term", "b", "--reading", "t=-3.5")
    (row,) = journalled(node.data)
    assert (row["entity"], row["x"], row["y"]) == ("s", -1.5, -2)
    assert (row["terms"], row["readings"]) == (["a", "b"], [("t", -3.5)])


ROWS = [{"x": n / 100, "y": 1, "terms": [str(n)]} for n in range(2500)]


@pytest.mark.parametrize("from_stdin", [True, False], ids=["stdin", "file"])
def test_file_of_events_is_published(node: RunningNode, tmp_path: Path, from_stdin: bool) -> None:
    """In order, in as many requests as needed; blank lines are ignored."""
    invoke("register", "source", "s")
    text = "\n".join(json.dumps(row) for row in ROWS) + "\n\n"
    file = tmp_path / "events.ndjson"
    file.write_text(text)
    printed = invoke("publish", "--source", "s", "-" if from_stdin else str(file), input=text if from_stdin else None)
    assert printed == "published 2,500 events of s\n"
    assert [row["terms"] for row in journalled(node.data)] == [row["terms"] for row in ROWS]


def test_large_events_are_published(node: RunningNode, tmp_path: Path) -> None:
    """A hundred events of 180 KB are more than one request can carry."""
    invoke("register", "source", "s")
    file = tmp_path / "events.ndjson"
    event = {"x": 1, "y": 1, "terms": [f"{n:0180}" for n in range(1000)]}
    file.write_text("\n".join([json.dumps(event)] * 100))
    assert invoke("publish", "--source", "s", str(file)) == "published 100 events of s\n"


TABLE = pa.table(
    {
        "x": [n / 100 for n in range(2_500)],
        "y": pa.array([1] * 2_500, pa.int8()),
        "time": pa.array(range(2_500), pa.timestamp("s", "UTC")),
        "terms": [[str(n)] for n in range(2_500)],
        "readings": pa.array([[("c", 1.5)]] * 2_500, pa.map_(pa.string(), pa.float64())),
    }
)


@pytest.mark.parametrize("suffix", ["arrow", "arrows", "parquet"])
def test_table_of_events_is_published(node: RunningNode, tmp_path: Path, suffix: str) -> None:
    invoke("register", "source", "s")
    file = tmp_path / f"events.{suffix}"
    file.write_bytes(parquet_body(TABLE) if suffix == "parquet" else ipc_body(TABLE, file=suffix == "arrow"))
    assert invoke("publish", "--source", "s", str(file)) == "published 2,500 events of s\n"
    rows = journalled(node.data)
    assert [row["terms"] for row in rows] == TABLE["terms"].to_pylist()
    assert [row["time"] for row in rows] == TABLE["time"].to_pylist()
    assert rows[0]["readings"] == [("c", 1.5)]


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (parquet_body(pa.table({"x": [1.0, 1.0], "y": [1.0, 91.0]})), ", row 2: y"),
        (parquet_body(pa.table({"x": ["1"]})), ", column x"),
        (parquet_body(pa.table({"colour": ["red"]})), ""),
        (b"PAR1", ""),
    ],
    ids=["row", "type", "column", "damaged"],
)
def test_invalid_tables_are_refused(node: RunningNode, tmp_path: Path, content: bytes, where: str) -> None:
    """With the row or the column; nothing is published."""
    invoke("register", "source", "s")
    file = tmp_path / "events.parquet"
    file.write_bytes(content)
    result = CliRunner().invoke(app, ["publish", "--source", "s", str(file)])
    assert isinstance(result.exception, InputError)
    assert result.exception.where == f"{file}{where}"
    assert result.exception.hint
    assert journalled(node.data) == []


BAD_ROWS = {
    "not JSON": (b"{", ""),
    "not UTF-8": (b'{"x": 1, "y": 1, "id": "\xff"}', ""),
    "unknown field": (b'{"x": 1, "y": 1, "z": 1}', ": z"),
    "out of range": (b'{"x": 1, "y": 91}', ": y"),
    "in the future": (b'{"x": 1, "y": 1, "time": "9999-01-01T00:00:00Z"}', ": time"),
    "of another source": (b'{"x": 1, "y": 1, "source": "other"}', ": source"),
    "no position": (b'{"terms": ["a"]}', ": x"),
}


@pytest.mark.parametrize(("line", "where"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_file_with_an_invalid_row_is_not_published(node: RunningNode, tmp_path: Path, line: bytes, where: str) -> None:
    """The error names the line; nothing of the file is journalled."""
    invoke("register", "source", "s")
    lines = [json.dumps(row).encode() for row in ROWS]
    lines[2000] = line
    file = tmp_path / "events.ndjson"
    file.write_bytes(b"\n".join(lines))
    with pytest.raises(InputError) as error:
        invoke("publish", "--source", "s", str(file))
    assert error.value.where == f"{file}, line 2001{where}"
    assert "/docs" not in str(error.value)
    assert journalled(node.data) == []


def test_invalid_rows_can_be_skipped(node: RunningNode) -> None:
    """Each is reported with its number; the others are published."""
    invoke("register", "source", "s")
    good = b'{"x": 1, "y": 1, "source": "s"}'
    rows = [good, *(line for line, _ in BAD_ROWS.values()), good]
    result = CliRunner().invoke(app, ["publish", "--source", "s", "--on-error", "skip", "-"], input=b"\n".join(rows))
    assert result.exit_code == 0
    reported = [line.split(":")[0] for line in result.stderr.splitlines()]
    assert reported == [f"skipped standard input, line {number}" for number in range(2, len(rows))]
    assert [row["x"] for row in journalled(node.data)] == [1, 1]


def test_rows_that_the_node_rejects_are_skipped_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node can have lower limits than the command knows."""
    monkeypatch.setenv("ROAMCAST_TOKENS", str(tmp_path / "tokens.json"))
    rows = '{"x": 1, "y": 1}\n{"x": 2, "y": 2, "terms": ["a", "b"]}\n{"x": 3, "y": 3}\n'
    with running_node(tmp_path / "data", limits={"event_terms": 1}) as node:
        invoke("register", "source", "s", "--url", node.url)
        arguments = ["publish", "--source", "s", "--on-error", "skip", "--url", node.url, "-"]
        result = CliRunner().invoke(app, arguments, input=rows)
        assert result.exit_code == 0
        assert result.stderr.startswith("skipped standard input, line 2: terms: ")
        assert [row["x"] for row in journalled(node.data)] == [1, 3]


@pytest.mark.parametrize(
    "options",
    [["--x", "1", "--y", "1", "--reading", "t=hot"], ["no-such-file"], ["-", "--term", "a"], []],
    ids=["reading", "missing file", "file and term", "no position"],
)
def test_invalid_arguments_are_refused(node: RunningNode, options: list[str]) -> None:
    """InputError: exit code 2."""
    invoke("register", "source", "s")
    with pytest.raises(InputError):
        invoke("publish", "--source", "s", *options)


@pytest.mark.parametrize(
    "options",
    [
        [], ["--x", "1", "--y", "91"], ["--x", "1"], ["--x", "1", "--y", "1", "--term", ""],
        ["--x", "1", "--y", "1", "--reading", "t=nan"], ["no-such-file"], ["-"],
    ],
    ids=["no position", "out of range", "half a point", "empty term", "not finite", "missing file", "invalid row"],
)  # fmt: skip
def test_invalid_event_registers_no_source_and_uses_no_number(node: RunningNode, options: list[str]) -> None:
    """Even with --register, the id of the source stays free."""
    for register in (["--register"], []):
        with pytest.raises(InputError):
            invoke("publish", "--source", "s", *register, *options, input="{}")
        if register:
            invoke("register", "source", "s")
    assert invoke("publish", "--source", "s", "--x", "1", "--y", "1") == "published event 1 of s\n"


def test_source_is_registered_with_its_first_event(node: RunningNode) -> None:
    """At the position of the event; a file without events registers nothing."""
    assert invoke("publish", "--register", "--source", "s", "-", input="\n") == "published 0 events of s\n"
    for number in (1, 2):
        published = invoke("publish", "--register", "--source", "s", "--x", "1", "--y", "2")
        assert published == f"published event {number} of s\n"
    assert invoke("where", "s").startswith("source s\nposition: 1, 2")


def test_result_is_printed_as_json(node: RunningNode, tmp_path: Path) -> None:
    """With the sequence numbers."""
    invoke("register", "source", "s", "--x", "1", "--y", "2")
    assert invoke_json("publish", "--source", "s") == {"source": "s", "accepted": 1, "first_seq": 1, "last_seq": 1}
    (tmp_path / "events.ndjson").write_text("{}\n{}\n")
    result = {"source": "s", "accepted": 2, "first_seq": 2, "last_seq": 3}
    assert invoke_json("publish", "--source", "s", "events.ndjson") == result
    (tmp_path / "events.ndjson").write_text("")
    result = {"source": "s", "accepted": 0, "first_seq": None, "last_seq": None}
    assert invoke_json("publish", "--source", "s", "events.ndjson") == result


def test_one_event_is_not_called_events(node: RunningNode) -> None:
    """Also if it comes from a file."""
    invoke("register", "source", "s", "--x", "1", "--y", "2")
    assert invoke("publish", "--source", "s", "-", input="{}") == "published 1 event of s\n"


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (["--x", "200", "--y", "1"], "--x"),
        (["--x", "1"], None),
        (["--x", "1", "--y", "1", "--term", ""], "--term"),
        (["--x", "1", "--y", "1", "--reading", "=1"], "--reading"),
    ],
)
def test_errors_name_options(node: RunningNode, options: list[str], where: str | None) -> None:
    """Not fields of the API, such as events[0].x."""
    invoke("register", "source", "s")
    with pytest.raises(InputError) as error:
        invoke("publish", "--source", "s", *options)
    assert error.value.where == where
    assert "/docs" not in str(error.value)


def test_a_reading_that_is_not_a_number_is_named(node: RunningNode) -> None:
    with pytest.raises(InputError, match="'hot' is not a number"):
        invoke("publish", "--register", "--source", "s", "--x", "1", "--y", "1", "--reading", "temperature=hot")
