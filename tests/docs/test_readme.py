"""The tour in the README works: its commands and its Python code run against a node and a pipeline."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import run_command
from nodes import RunningNode, running_node
from pages import ROOT, blocks, steps
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from streams import running_stream

from roamcast.client.tokens import TokenFile

README = ROOT / "README.md"
NOT_RUN = ("up", "node", "pipeline", "bench", "reproduce", "torture")  # these run for ever, or for long

# What differs between two runs, as it looks in the README.
VARIABLE = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+(?:\+00:00|Z)", r"\d{4}-\d\d-\d\dT[\d:.]+(?:\+00:00|Z)"),
    (r"[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", r"[0-9a-f-]{32,36}"),
    (r"[0-9a-f]{8}-?…", r"[0-9a-f-]{32,36}"),
    (r"\d+\.\d+ seconds", r"\d+\.\d+ seconds"),
    ("…", ".*"),
)


def pattern(output: str) -> str:
    """The output on the page as a regular expression, in which ids, times and `…` stand for any."""
    either = "|".join(f"({variable})" for variable, _ in VARIABLE)
    expression, end = "", 0
    text = " ".join(output.split())
    for match in re.finditer(either, text):
        assert match.lastindex is not None
        expression += re.escape(text[end : match.start()]) + VARIABLE[match.lastindex - 1][1]
        end = match.end()
    return expression + re.escape(text[end:])


def agrees(shown: str, output: str) -> bool:
    """Whether the output is as shown. Of JSON the page may show some of the keys, in any order."""
    if not shown.lstrip().startswith("{"):
        return re.fullmatch(pattern(shown), " ".join(output.split()), re.DOTALL) is not None
    return contains(json.loads(output), json.loads(shown))


def contains(value: Any, shown: Any) -> bool:
    if isinstance(shown, dict):
        return isinstance(value, dict) and all(key in value and contains(value[key], shown[key]) for key in shown)
    if isinstance(shown, str):
        return isinstance(value, str) and re.fullmatch(pattern(shown), " ".join(value.split())) is not None
    return bool(value == shown)


@pytest.fixture
def system(
    command_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[RunningNode, StreamingQuery]]:
    """A node and a pipeline. Commands talk to the node, and find the examples in the working directory."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("ROAMCAST_TOKENS", str(tmp_path / "tokens.json"))
    with running_node(tmp_path / "data") as node, running_stream(command_spark, tmp_path / "data") as query:
        monkeypatch.setenv("ROAMCAST_URL", node.url)
        yield node, query


def run_program(code: str) -> str:
    """Run a Python block as a program, as a reader would, and stop it after its first line, which is returned."""
    Path("program.py").write_text(code)
    with subprocess.Popen([sys.executable, "-u", "program.py"], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        line = program.stdout.readline()
        program.terminate()
    return line


@pytest.mark.timeout(1_200)
def test_the_tour_works(
    system: tuple[RunningNode, StreamingQuery], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command succeeds and prints what the page shows; the Python code receives a letter."""
    node, query = system
    commands, outputs, printed = 0, 0, []
    for block in blocks(README):
        if block.language == "python":
            printed += [run_program(block.code) for _ in range(2)]  # a reader may run it again
        for step in steps(block):
            words = shlex.split(step.command)
            if words[0] != "roamcast" or words[1] in NOT_RUN:
                continue
            query.processAllAvailable()  # a slow machine may need longer than a reader of the page waits
            capsys.readouterr()
            code = run_command(words[1:], monkeypatch)
            output, errors = capsys.readouterr()
            assert code == 0, f"{step.command}\n{errors}"
            commands += 1
            if step.output.strip():
                outputs += 1
                assert agrees(step.output, output), f"{step.command}\n{output}"
    assert (commands >= 8, outputs >= 3) == (True, True)
    assert all(line.endswith(" camera-2 ['fire', 'smoke']\n") for line in printed), printed
    tokens = TokenFile()
    assert node.client(tokens.get(node.url, "camera-2")).me()["next_seq"] == 3
    assert [one.id for one in node.client(tokens.get(node.url, "ben")).subscriptions()] == ["fires"]
