"""The journals of events that come over a link."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from backbone import backbone
from nodes import beat, journalled, problems, running_node, until

from roamcast.errors import InputError, UnavailableError
from roamcast.failures import wall_time
from roamcast.journal.writer import lock_journal
from roamcast.node.peers import links
from roamcast.node.peers.forwarding import ForwardedEvents
from roamcast.node.peers.links import LinkJournals

PIPELINE = "0123abcd"
EVENT = {
    "id": "b4:7", "source": "b4", "seq": 7, "time": "2026-11-16T10:00:00.123456+00:00", "x": 1.5, "y": 2.0,
    "terms": ["fire"], "readings": {"noise": 3.5},
}  # fmt: skip


def letter(**changes: Any) -> bytes:
    return orjson.dumps({"kind": "forwarded", "attributes": {"context": "noise"}, "event": {**EVENT, **changes}})


def batch(first: int, last: int, pipeline: str = PIPELINE) -> ForwardedEvents:
    return ForwardedEvents(pipeline, first, tuple(letter(seq=number) for number in range(first, last + 1)))


def append(data: Path, *batches: ForwardedEvents) -> tuple[list[int], dict[str, int]]:
    """Append these, as a node does between a start and a stop; what is missing before each, and the last numbers."""
    journals = LinkJournals(data / "journal", "south")
    journals.open()
    try:
        missing = [asyncio.run(journals.append(each)) for each in batches]
        return missing, dict(journals.last_numbers())
    finally:
        journals.close()


def numbers(data: Path, before: int = 0, pipeline: str = PIPELINE) -> list[int]:
    return [row["seq"] for row in journalled(data, f"south+{pipeline}+{before}")]


def test_events_are_journalled_as_they_were_published(tmp_path: Path) -> None:
    append(tmp_path, ForwardedEvents(PIPELINE, 1, (letter(),)))
    (row,) = journalled(tmp_path, f"south+{PIPELINE}+0")
    assert (row["kind"], row["entity"], row["seq"], row["id"]) == ("forwarded", "b4@south", 7, "b4:7")
    assert row["time"].isoformat() == EVENT["time"]
    assert (row["x"], row["y"], row["terms"], row["readings"]) == (1.5, 2.0, ["fire"], [("noise", 3.5)])
    assert row["body"] == '{"context":"noise"}'


def test_a_restart_continues_after_the_last_event(tmp_path: Path) -> None:
    assert append(tmp_path, batch(1, 3)) == ([0], {PIPELINE: 3})
    assert append(tmp_path, batch(4, 4), batch(5, 6)) == ([0, 0], {PIPELINE: 6})
    assert numbers(tmp_path) == [1, 2, 3, 4, 5, 6]


def test_what_is_missing_is_counted(tmp_path: Path) -> None:
    """The rest goes to a new journal, and a restart continues there."""
    assert append(tmp_path, batch(1, 3), batch(10, 11)) == ([0, 6], {PIPELINE: 11})
    assert append(tmp_path, batch(12, 12)) == ([0], {PIPELINE: 12})
    assert (numbers(tmp_path), numbers(tmp_path, 9)) == ([1, 2, 3], [10, 11, 12])


def test_each_pipeline_of_the_peer_has_its_own_numbers(tmp_path: Path) -> None:
    append(tmp_path, batch(1, 3))
    assert append(tmp_path, batch(1, 2, "ffff0000")) == ([0], {PIPELINE: 3, "ffff0000": 2})


def test_events_that_are_journalled_are_refused(tmp_path: Path) -> None:
    """A peer that sends them again does not listen."""
    append(tmp_path, batch(1, 3))
    with pytest.raises(UnavailableError):
        append(tmp_path, batch(3, 4))
    assert numbers(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", letter(source="b4@west"), letter(time="noon"), letter().replace(b"forwarded", b"event")],
)
def test_anything_else_is_refused(tmp_path: Path, content: bytes) -> None:
    """All of it: a peer may only forward events of its own sources."""
    with pytest.raises(InputError):
        append(tmp_path, ForwardedEvents(PIPELINE, 1, (letter(), content)))
    assert not (tmp_path / "journal" / f"south+{PIPELINE}+0").exists() or numbers(tmp_path) == []


def test_a_node_that_pulls_for_others_and_gets_nothing_is_noticed(tmp_path: Path) -> None:
    """Their subscriptions are not active, although their own requests to the peer succeed."""
    lock = lock_journal(tmp_path / "north" / "journal", "south+link")
    long_ago = time.time() - 60
    os.utime(lock, (long_ago, long_ago))
    with backbone(tmp_path, "north", "south", silence=3.0, pipeline_silence=3600) as nodes:
        beat(nodes["south"].data)
        ann = nodes["north"].subscriber("ann")
        ann.subscribe(terms=["fire"], id="q")
        until(lambda: "south does not respond" in str(ann.subscription("q").why), "the subscription to be partial")
        assert ann.subscription("q").state == "partial"
        os.close(lock)
        until(lambda: ann.subscription("q").state == "active", "this node to pull")


def test_a_peer_without_a_pipeline_is_noticed(tmp_path: Path) -> None:
    """Its node responds, but its events would wait."""
    with backbone(tmp_path, "north", "south", pipeline_silence=3600) as nodes:
        beat(nodes["north"].data)
        ann = nodes["north"].subscriber("ann")
        ann.subscribe(terms=["fire"], id="q")
        until(lambda: ann.subscription("q").state == "partial", "the subscription to be partial")
        shown = ann.subscription("q")
        assert str(shown.why).startswith("south has no running pipeline")
        assert problems(nodes["north"])["peer_stalled"]["detail"].startswith("south forwards no events: no pipeline")
        beat(nodes["south"].data)
        until(lambda: ann.subscription("q").state == "active", "south to have a pipeline")
        beat(nodes["south"].data, written_at=wall_time() - 4_000_000_000)
        until(lambda: ann.subscription("q").state == "partial", "the pipeline of south to be silent")
        assert "peer_stalled" in problems(nodes["north"])


def test_what_a_peer_says_of_its_pipeline_is_shown_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody can read /healthz."""
    with backbone(tmp_path, "north", "south") as nodes:
        monkeypatch.setattr(nodes["south"].service.health, "no_pipeline", lambda: "long " * 10_000)
        stalled = nodes["north"].service.links.stalled
        until(lambda: [len(failure.detail) for failure in stalled().values()] == [200], "a part of the reason")
        monkeypatch.setattr(nodes["south"].service.health, "no_pipeline", lambda: {"not": "text"})
        until(lambda: "south" in nodes["north"].service.links.failures(), "the response to be refused")


def test_no_peer_learns_the_link_of_another(tmp_path: Path) -> None:
    """With it, a peer could take the events that wait for the other, and so delete them."""
    with backbone(tmp_path, "north", "south", "west") as nodes:
        nodes["south"].subscriber("ann").subscribe(terms=["fire"], id="q")

        def links_of_south(node: str) -> set[str]:
            return {want.link for want in nodes[node].service.registry.wants() if want.peer == "south"}

        until(lambda: links_of_south("north") and links_of_south("west"), "south to be confirmed")
        assert links_of_south("north").isdisjoint(links_of_south("west"))


def test_a_link_that_works_again_is_noticed_without_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first response does not wait for one."""
    monkeypatch.setattr(links, "_WAIT", 30.0)
    with backbone(tmp_path, "north", "south") as nodes:
        north = nodes["north"].service.links
        nodes["south"].stop()
        until(north.failures, "the link to fail")
        with running_node(nodes["south"].data, domain="south"):
            until(lambda: not north.failures(), "the link to work")
