"""The examples of docs/backtest.md."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from backtests import START, STEP, live_world
from commands import run_command
from pages import ROOT, blocks, steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "backtest.md"


@pytest.fixture
def walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ann walks from one microphone to the other at 22:14:08."""
    monkeypatch.chdir(tmp_path)
    with live_world(tmp_path / "roamcast-data") as world:
        for id, x in (("north", 0), ("south", 10)):
            world.node.register(id, "source", (x, 0), context="level")
        world.node.register("ann", "subscriber", (1, 0))
        context = {"context": "level"}
        while world.now() < START + 39 * STEP:
            pass
        world.publish("north", (0, 0), level=58.0, attributes=context)
        world.publish("north", (0, 0), level=71.0, attributes=context)
        world.node.move(ann=(8, 0))
        world.publish("south", (10, 0), level=50.0, attributes=context)
        world.publish("south", (10, 0), level=66.0, attributes=context)
        world.batch()
        yield


@pytest.mark.usefixtures("walk")
def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (step,) = (step for block in blocks(PAGE) for step in steps(block))
    assert run_command(shlex.split(step.command)[1:], monkeypatch) == 0
    printed = capsys.readouterr()
    shown = step.output.splitlines()
    assert printed.out.splitlines() + printed.err.splitlines()[:-1] == shown


@pytest.mark.spark
@pytest.mark.usefixtures("walk")
def test_the_program(command_spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = (block.code for block in blocks(PAGE) if block.language == "python")
    exec(code, {})
    assert [line.split("|")[1:3] for line in capsys.readouterr().out.splitlines()[3:5]] == [
        ["        loud", "    2"], ["        rare", "    1"],
    ]  # fmt: skip
