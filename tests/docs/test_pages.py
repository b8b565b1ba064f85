"""What the pages say about commands, files and the Python API is true."""

from __future__ import annotations

import re
import shlex
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import typer
from backbone import backbone
from nodes import beat, running_node, until
from pages import PAGES, ROOT, blocks, commands, links

from roamcast import cli, client
from roamcast.settings import effective_settings, known_variables

NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def python_block(name: str) -> str:
    (block,) = (block.code for block in blocks(ROOT / name) if block.language == "python")
    return block


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_files_and_headings(name: str) -> None:
    """A link to a heading uses the anchor that GitHub makes of it."""
    page = ROOT / name
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, link


@pytest.mark.parametrize("name", NAMES)
def test_commands_and_their_options_exist(name: str) -> None:
    """Every `roamcast …` on a page names a command and options of it."""
    wrong = [command for command in commands(ROOT / name) if not exists(command)]
    assert wrong == []


def exists(text: str) -> bool:
    """Whether all options of a command line exist. A single `roamcast` without a subcommand may have any."""
    words = shlex.split(text.replace("…", " "), comments=True)[1:]
    command: Any = typer.main.get_command(cli.app)
    while words and hasattr(command, "commands"):
        if words[0].startswith("-"):
            break
        if words[0] in ("|", "COMMAND"):
            return True
        command = command.commands.get(words.pop(0))
        if command is None:
            return False
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"--help", "-h"}
    return all(word.partition("=")[0] in known for word in words if re.match(r"--?[a-zA-Z]", word))


@pytest.mark.parametrize("name", NAMES)
def test_source_files_exist(name: str) -> None:
    """A page may leave out leading folders of a path."""
    folders = [ROOT / folder for folder in ("src", "tests", "examples")]
    known = [f"/{path.relative_to(ROOT)}" for folder in folders for path in folder.rglob("*.*")]
    named = re.findall(r"`([\w./]+\.(?:py|lark|txt))`", (ROOT / name).read_text("utf-8"))
    assert [path for path in named if not any(file.endswith(f"/{path}") for file in known)] == []


@pytest.mark.parametrize("name", NAMES)
def test_environment_variables_exist(name: str) -> None:
    named = re.findall(r"\bROAMCAST_\w+", (ROOT / name).read_text("utf-8"))
    assert set(named) - set(known_variables()) == set()


def test_the_example_of_a_settings_file_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every value comes from the file."""
    (block,) = (block.code for block in blocks(ROOT / "docs/configuration.md") if block.language == "toml")
    (tmp_path / "roamcast.toml").write_text(block)
    monkeypatch.chdir(tmp_path)
    assert sum(setting.origin == "roamcast.toml" for setting in effective_settings()) == block.count(" = ")


def test_metrics_exist(tmp_path: Path) -> None:
    """A name that ends with _ stands for all metrics that begin with it. The index is a partitioned one."""
    partitioning = {
        "partitioner": "drtcluster", "imbalance": 1, "moved": 0, "merges": 0, "shards": [], "categories": [],
        "category_count": 0,
    }  # fmt: skip
    with running_node(tmp_path) as node:
        beat(node.data, partitioning=partitioning)
        until(lambda: "roamcast_pipeline_imbalance" in node.http.get("/metrics").text, "the status to be seen")
        metrics = re.findall(r"^# TYPE (\w+) ", node.http.get("/metrics").text, re.MULTILINE)
    named = {metric for page in PAGES for metric in re.findall(r"`(roamcast_\w+)", page.read_text("utf-8"))}
    assert named
    assert [
        metric
        for metric in named
        if metric not in metrics and not (metric.endswith("_") and any(each.startswith(metric) for each in metrics))
    ] == []


def test_demand_is_used_as_in_bind(tmp_path: Path) -> None:
    """The Python block of docs/bind.md runs. Its loop, which never ends, is cut after the first value."""
    with running_node(tmp_path) as node:
        source = node.source("microphone")

        class Microphone:
            on_demand = staticmethod(source.on_demand)

            def demand(self) -> Any:
                return islice(source.demand(), 1)

        exec(python_block("docs/bind.md"), {"microphone": Microphone()})
        source.close()


def test_events_are_published_elsewhere_as_in_collect(tmp_path: Path) -> None:
    """The Python block of docs/collect.md runs at a node with two peers."""
    with backbone(tmp_path, "north", "south", "west") as nodes:
        code = python_block("docs/collect.md").replace("http://127.0.0.1:8080", nodes["north"].url)
        exec(code, {"Client": client.Client})
