"""Event intake in columns equals an intake that looks at one event after the other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodes import LIMIT, RunningNode, in_process_node, journalled, until
from registries import apply
from starlette.concurrency import run_in_threadpool

from roamcast.errors import PermissionDeniedError, RoamcastError
from roamcast.journal.records import EVENT, Record, Records, to_records
from roamcast.lab.models.registry import MemoryRegistry
from roamcast.model import Position
from roamcast.node.callers import Caller
from roamcast.node.clock import check_time
from roamcast.node.columns.rows import events_of_models
from roamcast.node.control.entity_cache import EntityCache
from roamcast.node.intake import EventIntake, IntakeResult, SequenceNumbers, SourceNumbers
from roamcast.node.metrics import Metrics
from roamcast.node.peers.remote_sources import RemoteSource
from roamcast.node.publish_rights import PublishRights
from roamcast.node.schemas import EventIn
from roamcast.settings_model import NodeLimits
from roamcast.space import GEOGRAPHIC
from roamcast.store.registry.values import Entity, EntityAdded

NOW = 1_700_000_000_000_000
ENTITIES = {
    "here": Entity("here", "source", "1", {"floor": 2}, Position("here", 1.0, 2.0, 3)),
    "plain": Entity("plain", "source", "2", {}, Position("plain", -1.0, -2.0, 3)),
    "lost": Entity("lost", "source", "3", {"name": "ü"}),
    "foreign": Entity("foreign", "source", "4"),
}
FIELDS = {"here": '{"floor":2}', "lost": '{"name":"ü"}'}


class Journal:
    """Keeps records in memory."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.last_offset = 0

    def append(self, records: Records, *, urgent: bool = False) -> Future[int]:
        self.records += to_records(records) if isinstance(records, pa.RecordBatch) else records
        future: Future[int] = Future()
        future.set_result(1)
        return future

    def close(self) -> None:
        pass


class Intake:
    """An intake with its journal."""

    def __init__(self) -> None:
        registry = MemoryRegistry()
        apply(registry, *map(EntityAdded, ENTITIES.values()))
        self.journal = Journal()
        cache, limits = EntityCache(ENTITIES.values()), NodeLimits()
        metrics = Metrics(dict)
        self.parts = EventIntake(cache, self.journal, GEOGRAPHIC, SequenceNumbers(registry), metrics, limits)

    def accept(self, rights: PublishRights, events: Sequence[EventIn], *, bulk: bool = True) -> IntakeResult:
        return asyncio.run(self.parts.accept(rights, events_of_models(events), bulk=bulk, now=NOW))


def check_gateway(source: str) -> None:
    if source == "foreign":
        raise PermissionDeniedError("not a source of this gateway", hint="name one of its own")


GATEWAY = PublishRights(None, check_gateway)
ONE_OR_OTHERS = PublishRights("here", check_gateway)

seconds = st.sampled_from([NOW / 1e6, NOW / 1e6 + 299, NOW / 1e6 + 301, 0, -1e9])
points = st.sampled_from([(0.0, 0.0), (180.0, -90.0), (181.0, 0.0), (0.0, 91.0)])
rare_points = st.one_of(st.none(), st.none(), points)


@st.composite
def events(draw: st.DrawFn) -> EventIn:
    fields: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "source": st.sampled_from(["here", "plain", "lost", "foreign"]) | st.sampled_from(["here", "plain"]),
                "seq": st.integers(1, 9),
                "id": st.sampled_from(["a", "b"]),
                "time": seconds,
                "terms": st.lists(st.sampled_from(["p", "q"]), max_size=2),
                "readings": st.dictionaries(st.sampled_from(["r", "s"]), st.floats(-9, 9), max_size=2),
            },
        )
    )
    if (point := draw(rare_points)) is not None:
        fields |= {"x": point[0], "y": point[1]}
    return EventIn.model_validate(fields | {"terms": tuple(fields.get("terms", ()))})


def reference(default: str | None, events: Sequence[EventIn]) -> list[Record] | tuple[type[RoamcastError], str | None]:
    """The records, or what is wrong first: times, then sources, then points."""
    sources = [event.source or default for event in events]
    for row, event in enumerate(events):
        try:
            check_time(event.time or 0, NOW, 300.0, f"events[{row}].time")
        except RoamcastError as error:
            return type(error), error.where
    if None in sources:
        return RoamcastError, f"events[{sources.index(None)}].source"
    if "foreign" in sources:
        return PermissionDeniedError, f"events[{sources.index('foreign')}].source"
    records: list[Record] = []
    following: dict[str | None, int] = {}
    for source, event in zip(sources, events, strict=True):
        following[source] = max(following.get(source, 1), (event.seq or 0) + 1)
    for row, (source, event) in enumerate(zip(sources, events, strict=True)):
        assert source is not None
        position = ENTITIES[source].position
        x, y = (position.x, position.y) if event.x is None and position else (event.x, event.y)
        if x is None or y is None:
            return RoamcastError, f"events[{row}].x"
        if abs(x) > 180 or abs(y) > 90:
            return RoamcastError, f"events[{row}].{'x' if abs(x) > 180 else 'y'}"
        seq = event.seq or following[source]
        following[source] += event.seq is None
        id, time = event.id or f"{source}:{seq}", NOW if event.time is None else event.time
        records.append(
            Record(EVENT, source, seq, id, time, x, y, list(event.terms), event.readings, FIELDS.get(source))
        )
    return records


@pytest.mark.parametrize("rights", [GATEWAY, ONE_OR_OTHERS], ids=["gateway", "default"])
@given(rows=st.lists(events(), min_size=1, max_size=8))
def test_events_of_many_sources_equal_the_reference(rights: PublishRights, rows: list[EventIn]) -> None:
    """Records in their order; or the same error at the same row, and nothing is journalled."""
    intake, expected = Intake(), reference(rights.default, rows)
    if isinstance(expected, list):
        result = intake.accept(rights, rows)
        assert intake.journal.records == expected
        assert (result.accepted, result.first_seq, result.last_seq) == (len(rows), expected[0].seq, expected[-1].seq)
        by_source: dict[str | None, list[int | None]] = {}
        for record in expected:
            by_source.setdefault(record.entity, []).append(record.seq)
        assert list(result.sources) == [SourceNumbers(each, of[0], of[-1]) for each, of in by_source.items()]  # type: ignore[arg-type]
        return
    with pytest.raises(expected[0]) as caught:
        intake.accept(rights, rows)
    assert (caught.value.where, bool(caught.value.hint)) == (expected[1], True)
    assert intake.journal.records == []


def test_each_source_is_checked_before_and_after_the_events_get_numbers() -> None:
    """Once each, however many events it has."""
    checked: list[str] = []
    names = ["here", "plain", "here", "plain", "here"]
    Intake().accept(PublishRights(None, checked.append), [EventIn(source=name) for name in names])
    assert checked == ["here", "plain"] * 2


@contextmanager
def busy_threads(node: RunningNode) -> Iterator[Callable[[], int]]:
    """All threads that read from disks for requests are busy until the end; how many requests wait for one."""
    go, loop = threading.Event(), node.service._loop

    async def limiter() -> anyio.CapacityLimiter:
        return anyio.to_thread.current_default_thread_limiter()

    threads = asyncio.run_coroutine_threadsafe(limiter(), loop).result(LIMIT)
    for _ in range(int(threads.total_tokens)):
        asyncio.run_coroutine_threadsafe(run_in_threadpool(go.wait, LIMIT), loop)
    until(lambda: threads.available_tokens == 0, "all threads to be busy")
    try:
        yield lambda: threads.statistics().tasks_waiting
    finally:
        go.set()


def test_events_are_refused_if_their_source_changes_hands_while_they_get_numbers(tmp_path: Path) -> None:
    """And nothing of the request is journalled. The error names the row."""
    with in_process_node(tmp_path) as node:
        old, new = node.gateway("old", "s", "a"), node.gateway("new")
        rows = [{"source": id, "x": 1.0, "y": 2.0} for id in ("a", "a", "s")]
        headers = {"authorization": f"Bearer {old.token}"}
        gateways = node.service.gateway_requests
        with ThreadPoolExecutor(1) as pool:
            with busy_threads(node) as waiting:
                before = waiting()
                late = pool.submit(node.http.post, "/v1/events", json=rows, headers=headers)
                until(lambda: waiting() > before, "the request to wait for its numbers")
                gateways.remove_sources(Caller("old", "gateway"), ["s"]).result(LIMIT)
                source = Entity("s", "source", None, gateway="new")
                gateways.register_sources(Caller("new", "gateway"), [source]).result(LIMIT)
            response = late.result(LIMIT)
        assert (response.status_code, response.json()["error"]["where"]) == (403, "events[2].source")
        assert journalled(tmp_path) == []
        assert new.publish(rows[2]).accepted == 1


def test_errors_of_a_single_event_name_the_field_only() -> None:
    with pytest.raises(PermissionDeniedError) as caught:
        Intake().accept(PublishRights.of_source("here"), [EventIn(source="plain")], bulk=False)
    assert (caught.value.where, caught.value.message) == ("source", "the token belongs to here")


def test_events_of_remote_sources_keep_their_numbers() -> None:
    """They are journalled under the name that has the home, with its attributes; or passed on."""
    intake, source = Intake(), RemoteSource("south", "cam", '{"a":1}', "proof")
    passed: list[Record] = []

    async def pass_on(to: RemoteSource, records: Sequence[Record]) -> None:
        assert to is source
        passed.extend(records)

    async def accept(**options: Any) -> IntakeResult:
        columns = events_of_models([EventIn(seq=5, x=1.0, y=2.0), EventIn(seq=3, x=1.0, y=2.0, id="e", time=1)])
        return await intake.parts.accept_remote(source, columns, bulk=True, now=NOW, **options)

    expected = [
        Record(EVENT, "cam@south", 5, "cam:5", NOW, 1.0, 2.0, [], {}, '{"a":1}'),
        Record(EVENT, "cam@south", 3, "e", 1_000_000, 1.0, 2.0, [], {}, '{"a":1}'),
    ]
    assert asyncio.run(accept())[:3] == (2, 5, 3)
    assert intake.journal.records == expected
    asyncio.run(accept(pass_on=pass_on))
    assert (passed, intake.journal.records) == (expected, expected)
