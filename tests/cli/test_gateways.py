"""Commands for gateways and their sources."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import invoke, invoke_json
from nodes import RunningNode, journalled
from typer.testing import CliRunner

from roamcast.cli import app
from roamcast.client import Client
from roamcast.client.tokens import TokenFile
from roamcast.errors import ConflictError, InputError, NotFoundError


def test_a_gateway_and_its_sources_are_registered_and_removed(node: RunningNode) -> None:
    """The sources have no tokens."""
    assert invoke("register", "gateway", "hub", "--attribute", "floor=2") == "registered gateway hub\n"
    registered = invoke_json("register", "source", "meter-1", "--gateway", "hub", "--x", "1", "--y", "2")
    assert registered == {"kind": "source", "id": "meter-1", "gateway": "hub"}
    again = ("register", "source", "meter-2", "--gateway", "hub")
    assert [invoke(*again), invoke(*again)] == [
        "registered source meter-2 of gateway hub\n",
        "gateway hub has source meter-2 already; nothing is changed\n",
    ]
    assert TokenFile().ids(node.url) == ["hub"]
    assert node.operator().entity("meter-1")["position"]["x"] == 1
    assert invoke("where", "hub") == "gateway hub\nfloor: 2\nsources: 2\n"
    invoke("unregister", "meter-1", "--gateway", "hub", "--yes")
    with pytest.raises(NotFoundError):
        node.operator().entity("meter-1")
    assert invoke_json("unregister", "hub", "--yes") == {"kind": "gateway", "id": "hub"}
    with pytest.raises(NotFoundError):
        node.operator().entity("meter-2")
    assert TokenFile().ids(node.url) == []


def test_what_a_gateway_cannot_have_is_refused(node: RunningNode) -> None:
    with pytest.raises(InputError, match="no position"):
        invoke("register", "gateway", "hub", "--x", "1", "--y", "2")
    invoke("register", "gateway", "hub")
    with pytest.raises(InputError, match="belongs to no gateway"):
        invoke("register", "subscriber", "anna", "--gateway", "hub")
    invoke("register", "source", "mic")
    with pytest.raises(ConflictError):
        invoke("register", "source", "mic", "--gateway", "hub")
    with pytest.raises(NotFoundError):
        invoke("register", "source", "meter", "--gateway", "nobody")


SOURCES = [
    {"id": "a", "x": 1, "y": 2, "attributes": {"context": "noise", "floor": 2, "on": True}},
    {"id": "b", "x": 3, "y": 4},
    {"id": "c"},
]
REGISTER = ("register", "source", "--gateway", "hub", "--file")


def write_lines(path: Path, *rows: Any) -> str:
    path.write_text("\n\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    return str(path)


def fail(*words: str, input: str | None = None) -> tuple[str, BaseException | None]:
    """Run a command that fails; what it prints, and its error if it raises one."""
    result = CliRunner().invoke(app, words, input=input)
    assert result.exit_code != 0
    return result.output, None if isinstance(result.exception, SystemExit) else result.exception


def ids(node: RunningNode) -> list[str]:
    with Client(node.url, TokenFile().get(node.url, "hub")) as hub:
        return [source["id"] for source in hub.sources()]


@pytest.fixture
def hub(node: RunningNode) -> RunningNode:
    """A node with a gateway."""
    invoke("register", "gateway", "hub")
    return node


@pytest.mark.parametrize("suffix", ["ndjson", "parquet", "stdin"])
def test_sources_of_a_file_are_registered(hub: RunningNode, tmp_path: Path, suffix: str) -> None:
    """Once, however often the command is repeated."""
    file, input = str(tmp_path / f"sources.{suffix}"), None
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(SOURCES), file)
    else:
        input = Path(write_lines(Path(file), *SOURCES)).read_text()
    command = (*REGISTER, "-" if suffix == "stdin" else file)
    assert json.loads(invoke(*command, "--json", input=input)) == {"added": 3, "existing": 0, "refused": 0}
    assert invoke(*command, input=input) == "added 0 sources; 3 existed already, 0 were refused\n"
    shown = hub.operator().entity("a")
    assert (shown["gateway"], shown["attributes"]) == ("hub", SOURCES[0]["attributes"])
    assert (hub.operator().entity("b")["position"]["x"], hub.operator().entity("c")["position"]) == (3, None)


CSV = """id,x,y,context,floor,"on"
a,1,2,noise,2,true
b,3,4,,,
"c",,,,,
"""


def test_sources_of_a_csv_file_are_registered(hub: RunningNode, tmp_path: Path) -> None:
    """Columns other than id, x and y are attributes, which are read as those of the command line."""
    file = tmp_path / "sources.csv"
    file.write_bytes(b"\xef\xbb\xbf" + CSV.encode())
    assert invoke_json(*REGISTER, str(file)) == {"added": 3, "existing": 0, "refused": 0}
    operator = hub.operator()
    for source in SOURCES:
        shown = operator.entity(source["id"])
        assert shown["attributes"] == source.get("attributes", {})
        assert (shown["position"] or {}).get("y") == source.get("y")


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("d,1,91,,,", ", line 5: y"),
        ("d,east,1,,,", ", line 5: x"),
        ("d,1,1,,", ", line 5"),
        ("d,1,1,,,,", ", line 5"),
        ("d,1,1,,99999999999999999999,", ", line 5: floor"),
        (",1,1,,,", ", line 5: id"),
        ('d,"1', ""),
        ("d,\xff,,,,", ""),
    ],
    ids=["outside", "text", "fewer", "more", "attribute", "no id", "quote", "UTF-8"],
)
def test_nothing_of_a_csv_file_is_registered_if_a_row_is_invalid(
    hub: RunningNode, tmp_path: Path, line: str, where: str
) -> None:
    """With --on-error skip, the others are if the file can be read."""
    file = tmp_path / "sources.csv"
    file.write_bytes((CSV + line + "\n").encode("latin-1"))
    _, error = fail(*REGISTER, str(file))
    assert isinstance(error, InputError)
    assert (error.where, bool(error.hint)) == (f"{file}{where}", True)
    assert ids(hub) == []
    if where:
        output, _ = fail(*REGISTER, str(file), "--on-error", "skip")
        assert f"refused {error}" in output
        assert ids(hub) == ["a", "b", "c"]


BAD_SOURCES = {
    "not JSON": ("{", ""),
    "no id": ({"x": 1, "y": 1}, ": id"),
    "unknown field": ({"id": "d", "z": 1}, ": z"),
    "out of range": ({"id": "d", "x": 1, "y": 91}, ": y"),
    "own token": ({"id": "d", "token": "t" * 43}, ": token"),
    "attribute": ({"id": "d", "attributes": {"a": [1]}}, ": attributes"),
}


@pytest.mark.parametrize(("row", "where"), BAD_SOURCES.values(), ids=BAD_SOURCES)
def test_nothing_is_registered_if_a_row_is_invalid(hub: RunningNode, tmp_path: Path, row: Any, where: str) -> None:
    """With --on-error skip, the others are."""
    file = write_lines(tmp_path / "sources.ndjson", *SOURCES[:2], row, SOURCES[2])
    _, error = fail(*REGISTER, file)
    assert isinstance(error, InputError)
    assert str(error.where).startswith(f"{file}, line 5{where}")
    assert ids(hub) == []
    output, _ = fail(*REGISTER, file, "--on-error", "skip")
    assert f"{file}, line 5{where}" in output
    assert ids(hub) == ["a", "b", "c"]


def test_a_source_that_is_taken_is_reported_and_the_others_are_registered(hub: RunningNode, tmp_path: Path) -> None:
    invoke("register", "source", "b")
    output, error = fail(*REGISTER, write_lines(tmp_path / "sources.ndjson", *SOURCES))
    assert error is None
    assert "line 3" in output
    assert "added 2 sources; 0 existed already, 1 were refused" in output
    assert ids(hub) == ["a", "c"]


@pytest.mark.parametrize(
    "command",
    [
        ("register", "source", "--file", "sources.ndjson"),
        ("register", "gateway", "--gateway", "hub", "--file", "sources.ndjson"),
        ("register", "source", "d", "--gateway", "hub", "--file", "sources.ndjson"),
        ("register", "source", "--x", "1", "--y", "1", "--gateway", "hub", "--file", "sources.ndjson"),
        ("register", "source", "--gateway", "hub", "--file", "missing.ndjson"),
        ("register", "source", "--gateway", "hub"),
        ("publish", "--x", "1", "--y", "1"),
        ("publish", "--gateway", "hub", "--x", "1", "--y", "1"),
        ("publish", "--gateway", "hub", "--source", "a", "--register", "--x", "1", "--y", "1"),
        ("publish", "--gateway", "hub", "missing.ndjson"),
    ],
)
def test_contradictory_options_are_refused(hub: RunningNode, command: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as error:
        invoke(*command)
    assert error.value.hint


@pytest.fixture
def sources(hub: RunningNode, tmp_path: Path) -> RunningNode:
    """A node with a gateway and three sources."""
    invoke(*REGISTER, write_lines(tmp_path / "sources.ndjson", *SOURCES))
    return hub


@pytest.mark.parametrize("suffix", ["ndjson", "parquet"])
def test_events_of_a_file_are_published_for_sources(sources: RunningNode, tmp_path: Path, suffix: str) -> None:
    """In several requests. An event without a position has that of its source."""
    rows = [{"source": "ab"[n % 2], "readings": {"level": float(n)}} for n in range(1_500)]
    file = tmp_path / f"events.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    else:
        write_lines(file, *rows)
    assert invoke("publish", "--gateway", "hub", str(file)) == "published 1,500 events of sources of hub\n"
    published = [(row["entity"], row["x"], row["readings"]) for row in journalled(sources.data)]
    assert published == [("ab"[n % 2], 1 + 2 * (n % 2), [("level", n)]) for n in range(1_500)]


def test_one_source_of_a_gateway_publishes(sources: RunningNode, tmp_path: Path) -> None:
    """One event, or those of a file that need not name it."""
    command = ("publish", "--gateway", "hub", "--source", "a")
    assert invoke(*command, "--term", "fire") == "published event 1 of a\n"
    file = write_lines(tmp_path / "events.ndjson", {"terms": ["x"]}, {"terms": ["y"], "source": "a"})
    result = invoke_json(*command, file)
    assert (result["source"], result["accepted"]) == ("a", 2)
    assert [(row["entity"], row["terms"]) for row in journalled(sources.data)] == [
        ("a", ["fire"]), ("a", ["x"]), ("a", ["y"]),
    ]  # fmt: skip
    with pytest.raises(NotFoundError, match="hub has no source nobody"):
        invoke("publish", "--gateway", "hub", "--source", "nobody", "--term", "fire")


@pytest.mark.parametrize(
    ("row", "where"),
    [
        ({"source": "alone", "x": 1, "y": 1}, ": source"),
        ({"x": 1, "y": 1}, ": source"),
        ({"source": "c"}, ": x"),
        ({"source": "a", "x": 1}, ""),
    ],
    ids=["other", "none", "no position", "half a point"],
)
def test_nothing_of_a_file_is_published_if_a_row_is_invalid(
    sources: RunningNode, tmp_path: Path, row: dict[str, Any], where: str
) -> None:
    """With --on-error skip, the others are."""
    invoke("register", "source", "alone")
    file = write_lines(tmp_path / "events.ndjson", *[{"source": "a"}] * 1_200, row)
    _, error = fail("publish", "--gateway", "hub", file)
    assert isinstance(error, InputError)
    assert str(error.where).startswith(f"{file}, line 2401{where}")
    assert journalled(sources.data) == []
    assert invoke_json("publish", "--gateway", "hub", "--on-error", "skip", file)["accepted"] == 1_200


def test_what_was_published_before_an_error_is_reported(sources: RunningNode) -> None:
    """Rows from stdin are published as they arrive."""
    rows = [json.dumps({"source": "a"})] * 2_500
    output, error = fail("publish", "--gateway", "hub", "-", input="\n".join([*rows, "{"]))
    assert isinstance(error, InputError)
    assert "2,000 events of -, up to row 2,000, were published before" in output
    assert len(journalled(sources.data)) == 2_000


def test_commands_change_a_source_of_a_gateway(sources: RunningNode) -> None:
    operator = sources.operator()
    assert invoke("move", "c", "-5", "6", "--gateway", "hub") == "c is at -5, 6\n"
    assert operator.entity("c")["position"]["x"] == -5
    assert invoke("set-attributes", "c", "--attribute", "floor=3", "--gateway", "hub") == "floor: 3\n"
    assert operator.entity("c")["attributes"] == {"floor": 3}
    assert invoke("where", "c", "--gateway", "hub").startswith("source c\nposition: -5, 6")
    invoke("forget-position", "c", "--gateway", "hub")
    assert operator.entity("c")["position"] is None
    with Client(sources.url, TokenFile().get(sources.url, "hub")) as hub:
        hub.move_many([{"entity": "c", "x": 1, "y": 1, "time": time.time() + 200}])
    with pytest.raises(ConflictError, match="a newer position"):
        invoke("move", "c", "1", "2", "--gateway", "hub")


def test_sources_of_a_gateway_are_listed(sources: RunningNode) -> None:
    """With the demand for their events."""
    invoke("register", "subscriber", "anna", "--x", "0", "--y", "0")
    invoke("subscribe", "--subscriber", "anna", "--lacl", "Select Where &floor = 2 and &location in nearest")
    listed = invoke_json("sources", "--gateway", "hub")["sources"]
    assert [(one["id"], one["demanded"]) for one in listed] == [("a", True), ("b", False), ("c", False)]
    head, first, *_ = invoke("sources", "--gateway", "hub").splitlines()
    assert head.split() == ["id", "position", "demanded", "attributes"]
    assert " ".join(first.split()) == 'a 1, 2 yes context: "noise", floor: 2, on: true'


def test_a_gateway_without_sources_has_none_to_list(hub: RunningNode) -> None:
    assert invoke_json("sources", "--gateway", "hub") == {"sources": []}
    assert invoke("sources", "--gateway", "hub") == ""


def test_hints_lead_to_the_gateway(sources: RunningNode) -> None:
    with pytest.raises(NotFoundError) as unknown:
        invoke("move", "a", "1", "2")
    assert "pass --gateway if it belongs to one" in (unknown.value.hint or "")
    with pytest.raises(InputError, match="hub is a gateway") as wrong:
        invoke("publish", "--source", "hub", "--x", "1", "--y", "1")
    assert "--gateway hub" in (wrong.value.hint or "")
