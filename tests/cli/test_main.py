"""The entry point: help, exit codes, and what it imports."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from commands import invoke, run_command
from nodes import RunningNode, journalled

from roamcast import errors
from roamcast.cli import app
from roamcast.cli.options import _EXTRAS
from roamcast.errors import ExitCode, RoamcastError

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "cli.md"
PANELS = ("Run", "Talk", "Inspect", "Federate", "Batch", "Lab")


def commands(group: Any, *path: str) -> list[tuple[str, ...]]:
    """All commands as words, groups resolved."""
    found: list[tuple[str, ...]] = []
    for name, command in group.commands.items():
        found += commands(command, *path, name) if hasattr(command, "commands") else [(*path, name)]
    return found


COMMANDS = commands(typer.main.get_command(app))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_has_an_example(words: tuple[str, ...]) -> None:
    """That starts with the command itself."""
    assert f"Example: roamcast {' '.join(words)}" in " ".join(invoke(*words, "--help").split())


def test_help_groups_commands_in_panels() -> None:
    """In this order."""
    panels = [name for name in re.findall(r"─ (\w+) ─", invoke("--help")) if name != "Options"]
    assert panels == list(PANELS)


@pytest.mark.parametrize("words", [w for w in COMMANDS if w[0] in ("bench", "reproduce", "simulate")], ids=" ".join)
def test_json_is_a_flag_and_out_writes_files(words: tuple[str, ...]) -> None:
    """--json prints on standard output everywhere; --out names a file or folder."""
    text = " ".join(invoke(*words, "--help").split())
    assert "--json Print JSON" in text
    assert "--out" in text


ERRORS = [kind for name in errors.__all__ if issubclass(kind := getattr(errors, name), RoamcastError)]


@pytest.mark.parametrize("kind", ERRORS)
def test_error_decides_the_exit_code(
    kind: type[RoamcastError], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message is one line on standard error."""

    def fail(*_: object) -> None:
        raise kind("no", where="here", hint="do this")

    monkeypatch.setattr("roamcast.lacl.to_text", fail)
    assert run_command(["lacl", "check", "-e", "Select Where &location in nearest"], monkeypatch) == kind.exit_code
    assert capsys.readouterr() == ("", "roamcast: here: no (do this)\n")


def test_exit_codes_are_told_apart() -> None:
    """Usage, not found, refused, conflict, unavailable, limit, storage and missing extra differ."""
    kinds = ("InputError", "NotFoundError", "AuthenticationError", "ConflictError", "UnavailableError", "CapacityError",
             "StorageError", "MissingExtraError")  # fmt: skip
    assert [getattr(errors, kind).exit_code for kind in kinds] == [2, 3, 4, 5, 6, 7, 8, 9]


WRONG_USAGE = {
    "roamcast": (["fly"], "no such command 'fly'"),
    "roamcast lacl": (["lacl", "fly"], "no such command 'fly'"),
    "roamcast move": (["move", "anna"], "missing argument 'X'"),
    "roamcast register": (
        ["register"],
        "missing argument 'source|subscriber|gateway'. Choose from: source, subscriber, gateway",
    ),
    "roamcast where": (["where", "anna", "--url"], "option '--url' requires an argument"),
    "roamcast status": (["status", "now"], "got unexpected extra argument(s) (now)"),
    "roamcast pull": (["pull", "--subscriber", "anna", "--limit", "all"], "--limit: must be an integer"),
    "roamcast send": (["send", "b", "m", "--subscriber", "a", "--ttl", "-1"], "--ttl: must be at least 0"),
    "roamcast subscribe": (["subscribe", "--subscriber", "a", "--box", "0", "0", "1", "N"], "--box: must be a number"),
    "roamcast node": (["node", "--space", "round"], "--space: must be one of 'geographic', 'planar'"),
    "roamcast lacl check": (["lacl", "check", "--query", "q"], "no such option: --query"),
}


@pytest.mark.parametrize(("command", "words", "message"), [(name, *case) for name, case in WRONG_USAGE.items()])
def test_wrong_usage_is_one_line(
    command: str,
    words: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 2, with the option or argument, and the command whose help to read."""
    assert run_command(words, monkeypatch) == ExitCode.USAGE
    assert capsys.readouterr().err == f"roamcast: {message} (see: {command} --help)\n"


@pytest.mark.parametrize("words", [(), *COMMANDS], ids=" ".join)
def test_help_shows_no_types_of_flags(words: tuple[str, ...]) -> None:
    """Nor defaults of flags that are always on, nor braces around arguments."""
    text = invoke(*words, "--help")
    assert [part for part in ("<bool>", "[default: True]") if part in text] == []
    assert "{" not in text.partition("Example")[0]


NO_RESULT = {"up", "node", "pipeline", "compile", "docs"}  # they serve, print nothing or print Markdown


@pytest.mark.parametrize("words", [words for words in COMMANDS if words[-1] not in NO_RESULT], ids=" ".join)
def test_every_command_with_a_result_has_json(words: tuple[str, ...]) -> None:
    assert "--json" in invoke(*words, "--help")


def test_documented_exit_codes_are_current() -> None:
    """The table in docs/cli.md has every code."""
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", DOCS.read_text(), flags=re.MULTILINE)
    assert {name: int(code) for code, name in rows} == {code.name: code.value for code in ExitCode}


HEAVY = {
    "fastapi", "fastapi_offline", "matplotlib", "numba", "numpy", "pandas", "prometheus_client", "psycopg", "pyarrow",
    "pyspark", "scipy", "shapely", "sqlalchemy", "starlette", "uvicorn", "xstatic",
}  # fmt: skip


def run_light(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python code without the packages of the extras."""
    block = f"import sys; sys.modules.update(dict.fromkeys({sorted(HEAVY)}))\n"  # as if they were not installed
    command = [sys.executable, "-c", block + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


MAIN = "from roamcast.cli import main; main()"


def test_light_install_has_client_and_lacl() -> None:
    """Everything that `roamcast` exports can be imported without numpy, Spark and the like."""
    code = """
import roamcast
for name in roamcast.__all__:
    getattr(roamcast, name)
client = roamcast.Client("http://127.0.0.1:9", delays=())
try:
    client.health()
except roamcast.UnavailableError as error:
    print(error.code)
from roamcast import lacl
print(lacl.explain(lacl.check(lacl.parse("Select Where &location in nearest")))["plan"])
"""
    done = run_light(code)
    assert (done.stdout.split(), done.stderr) == (["unavailable", "bind"], "")


def test_light_install_runs_client_commands() -> None:
    """The help, LACL checks and settings; a call ends with `unavailable`."""
    assert "publish" in run_light(MAIN, "--help").stdout
    assert run_light(MAIN, "lacl", "check", "-e", "Select Where &location in nearest").returncode == 0
    assert run_light(MAIN, "config", "show").returncode == 0
    done = run_light(MAIN, "subscribe", "--subscriber", "a", "--term", "t", "--register", "--url", "http://127.0.0.1:9")
    assert done.returncode == ExitCode.UNAVAILABLE


def test_light_install_talks_to_a_node(node: RunningNode) -> None:
    """A client registers, subscribes, publishes and gets a letter, and commands call the node."""
    code = """
import sys
import roamcast

url = sys.argv[1]
with roamcast.Client.connect_subscriber("anna", url, x=13.4, y=52.5) as anna:
    id = anna.subscribe(box=(13.0, 52.0, 14.0, 53.0), terms=["fire"])
    print(anna.subscription(id).state, anna.health()["domain"])
    with roamcast.Client.connect_source("camera", url, x=13.4, y=52.5) as camera:
        print(camera.publish([{"terms": ["fire"]}, {"terms": ["fire"]}]).accepted)
    with roamcast.Client.connect_subscriber("ben", url) as ben:
        ben.send("anna", "hello")
    print([letter.message for letter in anna.pull(wait=30)])
    print(anna.acknowledge(1))
"""
    done = run_light(code, node.url)
    assert (done.stdout.splitlines(), done.stderr) == (["active local", "2", "['hello']", "1"], "")
    assert [row["kind"] for row in journalled(node.data)] == ["subscription", "event", "event"]
    assert run_light(MAIN, "status", "--json").returncode == ExitCode.UNAVAILABLE  # there is no pipeline
    assert run_light(MAIN, "publish", "--source", "bell", "--register", "--x", "1", "--y", "2").returncode == 0
    assert journalled(node.data)[-1]["entity"] == "bell"


def test_extras_contain_what_commands_look_for() -> None:
    """The packages that commands check for are requirements of the extra, and not of the light installation."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra, packages in _EXTRAS.items():
        lines = project["optional-dependencies"][extra]
        requirements = {re.split(r"[<>=\[]", line)[0].replace("_", "-") for line in lines}
        assert {package.replace("_", "-") for package in packages} <= requirements
        assert not requirements & {re.split(r"[<>=\[]", line)[0] for line in project["dependencies"]}


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("node",), "node"),
        (("up",), "node,pipeline"),
        (("pipeline",), "pipeline"),
        (("match", "--events", "e", "--subscriptions", "s", "--out", "o"), "pipeline"),
        (("bench", "bind"), "node,lab"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else value,
)
def test_missing_extra_is_named(words: tuple[str, ...], extra: str) -> None:
    """With the commands to install it, from a clone or not, and an exit code of its own."""
    done = run_light(MAIN, *words)
    assert done.returncode == ExitCode.MISSING_EXTRA
    assert f"pip install '.[{extra}]'" in done.stderr
    assert f"pip install 'roamcast[{extra}]'" in done.stderr
    assert done.stderr.count("\n") == 1
