"""Commands that show state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import invoke, invoke_json, run_command
from nodes import RunningNode, beat
from typer.testing import CliRunner

from roamcast.cli import app
from roamcast.client.tokens import TokenFile
from roamcast.errors import AuthenticationError, ExitCode, InputError, NotFoundError

NEAREST = "Select Where &context = noise and &location in nearest"


def walk() -> None:
    """Anna goes from one microphone to the other."""
    invoke("register", "source", "mic-1", "--attribute", "context=noise", "--x", "-10", "--y", "-5")
    invoke("register", "source", "mic-2", "--attribute", "context=noise", "--x", "10", "--y", "5")
    invoke("register", "subscriber", "anna", "--x", "-9", "--y", "-5")
    invoke("subscribe", "--subscriber", "anna", "--lacl", NEAREST, "--id", "q")
    invoke("move", "anna", "9", "5")


def test_moving_region_is_described(node: RunningNode) -> None:
    """In place of bound sources."""
    invoke("register", "subscriber", "anna")
    invoke(
        "subscribe", "--subscriber", "anna", "--lacl", "Select all() Where &location in rang:loc(0.5 km)", "--id", "q"
    )
    shown = " ".join(invoke("subscriptions", "--subscriber", "anna").split())
    assert "every event within 500 m of anna" in shown
    assert "the position of anna is not known" in shown


def test_subscriptions_are_shown_as_a_table(node: RunningNode) -> None:
    """State, source, since when, and why not."""
    walk()
    invoke("subscribe", "--subscriber", "anna", "--term", "fire", "--id", "r")
    invoke("subscribe", "--subscriber", "anna", "--lacl", f"{NEAREST} and &floor = 7", "--id", "s")
    head, *rows = invoke("subscriptions", "--subscriber", "anna").splitlines()
    assert head.split() == ["id", "state", "source", "since", "why", "not"]
    assert [row.split()[:3] for row in rows] == [
        ["q", "active", "mic-2"],
        ["r", "active", "every"],
        ["s", "start", "-"],
    ]
    assert rows[2].endswith("no source with &context = noise and &floor = 7 is registered")


def test_one_subscription_is_shown_with_its_history(node: RunningNode) -> None:
    """Newest binding first; the current one lasts until now."""
    walk()
    lines = invoke("subscriptions", "--subscriber", "anna", "q").splitlines()
    assert NEAREST in lines
    newest, oldest = (line.split() for line in lines[-2:])
    assert (newest[0], newest[-1], oldest[0]) == ("mic-2", "now", "mic-1")
    assert oldest[-2:] == newest[1:3]
    assert [b["source"] for b in invoke_json("subscriptions", "--subscriber", "anna", "q")["bindings"]] == [
        "mic-2",
        "mic-1",
    ]


def test_operator_sees_all_subscriptions(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the token from a file, or from the data folder, which the environment can name."""
    walk()
    invoke("register", "subscriber", "ben")
    invoke("subscribe", "--subscriber", "ben", "--term", "fire", "--id", "r")
    with pytest.raises(AuthenticationError, match="operator-token-file"):
        invoke("subscriptions")
    head, *rows = invoke("subscriptions", "--data", str(node.data)).splitlines()
    assert head.split()[:3] == ["id", "subscriber", "state"]
    assert [row.split()[:3] for row in rows] == [["q", "anna", "active"], ["r", "ben", "active"]]
    token = ("--operator-token-file", str(node.data / "operator.token"))
    assert [s["id"] for s in invoke_json("subscriptions", "--subscriber", "ben", *token)["subscriptions"]] == ["r"]
    monkeypatch.setenv("ROAMCAST_DATA", str(node.data))
    assert "mic-1" in invoke("subscriptions", "q")
    assert invoke_json("where", "ben")["count"] == 1


def test_where_shows_ten_subscriptions(node: RunningNode) -> None:
    """And how many more there are."""
    invoke("register", "subscriber", "anna")
    anna = node.client(TokenFile().get(node.url, "anna"))
    for number in range(12):
        anna.subscribe(terms=["a"], id=f"q{number:02}")
    last = invoke("where", "anna").splitlines()[-1]
    assert last == f"subscriptions: {', '.join(f'q{number:02}' for number in range(10))}, and 2 more"


def test_where_shows_an_entity(node: RunningNode) -> None:
    """Kind, position, attributes and bound subscriptions."""
    walk()
    lines = invoke("where", "mic-2").splitlines()
    assert lines[0] == "source mic-2"
    assert lines[1].startswith("position: 10, 5, since ")
    assert lines[2:] == ['context: "noise"', "bound subscriptions: q"]


def test_operator_sees_entities_registered_elsewhere(node: RunningNode) -> None:
    """With the token from a file, or from the data folder."""
    node.source("stranger", x=1, y=2)
    with pytest.raises(NotFoundError, match=r"tokens\.json"):
        invoke("where", "stranger")
    token = str(node.data / "operator.token")
    for option in (("--operator-token-file", token), ("--data", str(node.data))):
        assert invoke_json("where", "stranger", *option)["position"]["x"] == 1


EVENT = '{"source": "cam", "x": 1, "y": 2, "terms": ["ice"]}'


@pytest.fixture
def subscribed(node: RunningNode) -> RunningNode:
    invoke("register", "subscriber", "anna")
    invoke("subscribe", "--subscriber", "anna", "--term", "fire", "--id", "q")
    return node


def explain(event: str, *options: str, input: str | None = None) -> str:
    words = ("explain-match", "--subscriber", "anna", "--subscription", "q", "--event", event)
    return invoke(*words, *options, input=input)


def test_each_check_of_a_match_is_a_line(subscribed: RunningNode) -> None:
    """Below the verdict: the check, whether it holds, and why."""
    verdict, empty, head, *lines = explain(EVENT).splitlines()
    assert (verdict, empty, head.split()) == ("does not match", "", ["check", "holds", "why"])
    assert [line.split(maxsplit=2) for line in lines[1:]] == [
        ["source", "no", "no source cam is registered here"],
        ["terms", "no", 'the event lacks "fire"'],
        ["state", "no", "no pipeline has reported to this node yet"],
    ]


def test_event_is_passed_as_text_file_or_input(subscribed: RunningNode, tmp_path: Path) -> None:
    """All mean the same; --json prints the node's response."""
    (tmp_path / "event.json").write_text(EVENT)
    outputs = [explain(EVENT, "--json"), explain("event.json", "--json"), explain("-", "--json", input=EVENT)]
    assert len(set(outputs)) == 1
    assert json.loads(outputs[0])["matches"] is False


def test_operator_explains_any_subscription(subscribed: RunningNode, tmp_path: Path) -> None:
    """With the token of the node's data folder."""
    words = ("explain-match", "--subscription", "q", "--event", EVENT, "--data", str(tmp_path / "data"))
    assert invoke(*words).startswith("does not match")


@pytest.mark.parametrize("event", ["missing.json", "{", "-"])
def test_invalid_event_is_refused(subscribed: RunningNode, event: str) -> None:
    """Before the node is called."""
    with pytest.raises(InputError):
        explain(event, input="[]")


def test_missing_operator_token_is_an_error(node: RunningNode) -> None:
    """AuthenticationError: exit code 4."""
    with pytest.raises(AuthenticationError):
        invoke("where", "anna", "--operator-token-file", "no-such-file")


def test_status_of_a_node_that_is_ok(
    node: RunningNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 0, the pipeline and its lag."""
    beat(node.data, batch=7, running_batch=8, running_since=1_000_000)
    assert run_command(["status"], monkeypatch) == 0
    first, pipeline, lag = capsys.readouterr().out.splitlines()
    assert (first, lag) == ("node local: ok", "lag: 0 records")
    assert pipeline.startswith("pipeline: after batch 7, last heartbeat ")
    assert "; batch 8 running since 1970-01-01" in pipeline


def test_status_shows_shards_and_categories(node: RunningNode) -> None:
    """A line about the partitioner and a table of shards; --json has the categories."""
    shards = [
        {"worker": 0, "subscriptions": 1200, "messages": 5, "checks": 7, "matches": 2},
        {"worker": 1, "subscriptions": 3, "messages": 0, "checks": 0, "matches": 0},
    ]
    categories = [{"category": 4, "worker": 0, "size": 1200, "load": 6000}]
    partitioning = {
        "partitioner": "drtcluster", "imbalance": 1.25, "moved": 1, "shards": shards, "categories": categories,
        "category_count": 1, "merges": 2,
    }  # fmt: skip
    beat(node.data, batch=7, partitioning=partitioning)
    lines = CliRunner().invoke(app, ["status"]).output.splitlines()
    assert lines[2:7] == [
        "partitioner: drtcluster, imbalance 1.25, 1 subscription moved; 1 category, 2 merges",
        "",
        "shard  subscriptions  messages  checks  matches  categories  largest  load",
        "0      1,200          5         7       2        1           1,200    6,000",
        "1      3              0         0       0        0           0        0",
    ]
    found = json.loads(CliRunner().invoke(app, ["status", "--json"]).output)
    assert found["pipeline"]["partitioning"] == partitioning


def test_status_shows_up_to_where_the_archive_is_complete(node: RunningNode) -> None:
    archived = {"since": "1970-01-01T00:00:01Z", "time": "1970-01-01T00:00:02Z", "offset": 1234}
    archive = {"files": 1, "recent": 2, "bytes": 1_250_000, "erasing": 1, "problem": None, "problem_since": None}
    beat(node.data, archive=archive | {"nodes": {"local": archived}, "place": "data"})
    lines = CliRunner().invoke(app, ["status"]).output.splitlines()
    assert lines[2] == "archive: 1.2 MB in 1 file, 2 batches not compacted, 1 erasure not carried out in all files"
    assert (lines[5].split()[0], lines[5].split()[-1]) == ("local", "1,234")
    found = json.loads(CliRunner().invoke(app, ["status", "--json"]).output)
    assert found["pipeline"]["archive"]["nodes"] == {"local": archived}


def test_status_before_the_first_batch(node: RunningNode) -> None:
    """There is no batch -1, and one record is not records."""
    beat(node.data, batch=-1)
    invoke("register", "subscriber", "anna")
    invoke("subscribe", "--subscriber", "anna", "--term", "fire")
    lines = CliRunner().invoke(app, ["status"]).output.splitlines()
    assert lines[1].startswith("pipeline: no batch yet, last heartbeat ")
    assert lines[2].startswith("lag: 1 record, the oldest for ")


def test_status_of_a_degraded_node(
    node: RunningNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 6, and what is wrong; also as JSON."""
    assert run_command(["status"], monkeypatch) == ExitCode.UNAVAILABLE
    text = capsys.readouterr().out
    assert text.startswith("node local: degraded\npipeline: none has reported\n")
    assert text.splitlines()[-1].startswith("no_pipeline  ")
    assert run_command(["status", "--json"], monkeypatch) == ExitCode.UNAVAILABLE
    assert json.loads(capsys.readouterr().out)["problems"][0]["kind"] == "no_pipeline"
    assert run_command(["status", "--url", "http://127.0.0.1:9"], monkeypatch) == ExitCode.UNAVAILABLE
