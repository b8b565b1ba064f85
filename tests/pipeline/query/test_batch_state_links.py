"""Whole batches without Spark: events that leave for another data folder, and events that come from one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from batches import Batch, PureStream, placed

from roamcast.journal.bodies import BindingBody, SubscriptionBody
from roamcast.journal.records import BINDING, EVENT, FORWARDED, LAST_KNOWN, SUBSCRIPTION, Record
from roamcast.journal.wants import begin_want, end_want, want_of_source
from roamcast.model import Box
from roamcast.pipeline.letters import by_source
from roamcast.pipeline.query.batch_state import BatchSettings

LINK = "f" * 32
QUEUE = f"south@{LINK}"
REGION = SubscriptionBody(Box(0, 0, 1, 1), ("fire",), space="planar").to_json()
WIDER = SubscriptionBody(Box(0, 0, 9, 9), (), space="planar").to_json()


def event(
    source: str, seq: int, time: int, *, kind: str = EVENT, x: float = 0.5, terms: tuple[str, ...] = ()
) -> Record:
    return Record(kind, source, seq, f"{source}:{seq}", time, x, 0.5, terms, {"level": 1.5}, '{"context":"level"}')


def subscribe(id: str, body: str = WIDER) -> Record:
    return Record(SUBSCRIPTION, "ann", id=id, time=1, body=body)


def bind(id: str, source: str, time: int, *, initial: bool = False) -> Record:
    return Record(BINDING, source, id=id, time=time, body=BindingBody("ann", initial=initial).to_json())


def bodies(result: Batch, office: str) -> list[dict[str, Any]]:
    rows = result.letters[office].to_pylist() if office in result.letters else []
    return [orjson.loads(row["body"]) for row in rows]


def events_of(result: Batch, office: str) -> list[str]:
    return [body["event"]["id"] for body in bodies(result, office)]


@pytest.fixture(params=[0, 2])
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> PureStream:
    return PureStream(tmp_path, BatchSettings(workers=request.param))


def test_an_event_is_forwarded_once_however_often_it_is_wanted(stream: PureStream) -> None:
    """With the attributes of its source. The local subscriber gets its own letter."""
    wants = [begin_want(LINK, want, 1) for want in (REGION, WIDER, want_of_source("b4"))]
    rows = placed([*wants, subscribe("q"), event("b4", 1, 5, terms=("fire",))], "south")
    result = stream.run(rows)
    assert events_of(result, "south") == ["b4:1"]
    (forwarded,) = bodies(result, QUEUE)
    assert (forwarded["kind"], forwarded["attributes"]) == (FORWARDED, {"context": "level"})
    assert forwarded["event"]["readings"] == {"level": 1.5}


def test_only_wanted_events_are_forwarded(stream: PureStream) -> None:
    """And numbered densely."""
    rows = placed([begin_want(LINK, REGION, 1), *(event("b4", n, n, x=n % 2 * 5.0) for n in range(2, 8))], "south")
    assert events_of(stream.run(rows), QUEUE) == []
    rows = placed([event("b4", n, n, x=n % 2 * 5.0, terms=("fire",)) for n in range(8, 14)], "south", 8)
    result = stream.run(rows)
    assert events_of(result, QUEUE) == ["b4:8", "b4:10", "b4:12"]
    assert result.letters[QUEUE]["number"].to_pylist() == [1, 2, 3]


def test_what_ends_is_not_forwarded_any_more(stream: PureStream) -> None:
    rows = [begin_want(LINK, WIDER, 1), event("b4", 1, 2), end_want(LINK, WIDER, 3), event("b4", 2, 4)]
    assert events_of(stream.run(placed(rows, "south")), QUEUE) == ["b4:1"]


def test_a_new_want_of_a_source_brings_its_last_event(stream: PureStream) -> None:
    stream.run(placed([event("b4", 1, 1), event("b4", 2, 2)], "south"))
    result = stream.run(placed([begin_want(LINK, want_of_source("b4"), 5), event("b4", 3, 6)], "south", 3))
    assert [(body["kind"], body["event"]["id"]) for body in bodies(result, QUEUE)] == [
        (LAST_KNOWN, "b4:2"),
        (FORWARDED, "b4:3"),
    ]


def test_nothing_that_came_over_a_link_is_forwarded(stream: PureStream) -> None:
    """Nor are events of sources of other nodes of the same folder: a link is to one node."""
    stream.run(placed([begin_want(LINK, WIDER, 1), begin_want(LINK, want_of_source("b4"), 1)], "south"))
    foreign = placed([event("b4@west", 1, 5, kind=FORWARDED)], "west+0123abcd+0")
    beside = placed([event("b4", 1, 5)], "east")
    taken_in = placed([event("b4@south", 7, 5)], "east", 2)
    assert events_of(stream.run([*foreign, *beside, *taken_in]), QUEUE) == ["b4@south:7"]


def test_forwarded_events_match_regions_and_bindings(stream: PureStream) -> None:
    stream.run(placed([subscribe("q"), bind("p", "b4@south", 10)], "north"))
    rows = placed([event("b4@south", n, 10 * n, kind=FORWARDED) for n in (2, 5, 9)], "south+0123abcd+0")
    letters = bodies(stream.run(rows), "north")
    assert [(letter["subscription"], letter["event"]["seq"]) for letter in letters] == [
        ("p", 2), ("q", 2), ("p", 5), ("q", 5), ("p", 9), ("q", 9),
    ]  # fmt: skip


def test_gaps_of_unwanted_events_are_no_gaps(stream: PureStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_source, "MAX_GAPS", 10)
    stream.run(placed([subscribe("q")], "north"))
    rows = placed([event("b4@south", 2 * n, n, kind=FORWARDED) for n in range(1, 100)], "south+0123abcd+0")
    result = stream.run(rows)
    assert len(events_of(result, "north")) == 99
    assert result.dead_letters == []


def test_the_last_event_reaches_a_binding_that_came_before_it(stream: PureStream) -> None:
    """Once, though it was published before; and neither regions nor other bindings get it."""
    stream.run(placed([subscribe("q"), bind("p", "b4@south", 10, initial=True), bind("o", "b4@south", 10)], "north"))
    last_known = event("b4@south", 3, 5, kind=LAST_KNOWN)
    result = stream.run(placed([last_known], "south+0123abcd+0"))
    assert [(body["subscription"], body["event"]["id"]) for body in bodies(result, "north")] == [("p", "b4@south:3")]
    again = stream.run(placed([last_known], "south+0123abcd+0", 2))
    assert bodies(again, "north") == []
    stream.run(placed([bind("r", "b4@south", 20, initial=True)], "north", 4))
    result = stream.run(placed([event("b4@south", 4, 25, kind=FORWARDED)], "south+0123abcd+0", 3))
    assert {body["subscription"] for body in bodies(result, "north")} == {"o", "p", "q", "r"}


def test_the_last_event_reaches_a_binding_of_the_same_batch_once(stream: PureStream) -> None:
    rows = placed([bind("p", "b4@south", 10, initial=True)], "north")
    rows += placed([event("b4@south", 3, 5, kind=LAST_KNOWN)], "south+0123abcd+0")
    assert events_of(stream.run(rows), "north") == ["b4@south:3"]
