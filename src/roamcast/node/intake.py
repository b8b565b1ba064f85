"""Event intake: check events, give them sequence numbers, journal them, then acknowledge."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool

from roamcast.errors import InputError, PermissionDeniedError
from roamcast.journal.port import JournalWriter
from roamcast.journal.records import EVENT, Record
from roamcast.model import global_name
from roamcast.node.clock import check_time
from roamcast.node.control.entity_cache import EntityCache
from roamcast.node.metrics import Metrics
from roamcast.node.peers.remote_sources import RemoteSource
from roamcast.node.schemas import HIGHEST_SEQ, EventIn
from roamcast.node.waiting import await_to_the_end
from roamcast.settings_model import NodeLimits
from roamcast.space import Space
from roamcast.store.registry.port import RegistryStore

__all__ = ["EventIntake", "IntakeResult", "SequenceNumbers"]

_BLOCK = 1_000


class SequenceNumbers:
    """The sequence numbers of sources. Belongs to one event loop.

    A bound above all numbers in use is stored before they are used. After a restart, numbering continues from the
    bound. The gaps are harmless; a number used twice would lose an event.
    """

    def __init__(self, registry: RegistryStore) -> None:
        self._registry = registry
        self._next: dict[str, int] = {}
        self._bounds: dict[str, int] = {}
        self._changing: dict[str, asyncio.Lock] = {}

    async def next_of(self, source: str) -> int:
        """The number that the next event would get."""
        if source not in self._next:
            bound = await run_in_threadpool(self._registry.sequence_bound, source)
            self._bounds.setdefault(source, bound)
            self._next.setdefault(source, bound)
        return self._next[source]

    async def take(self, source: str, requested: Sequence[int | None]) -> list[int]:
        """A number for each event: the requested one, or for None the next above all others."""
        async with self._changing.setdefault(source, asyncio.Lock()):
            next_seq = max([await self.next_of(source), *(seq + 1 for seq in requested if seq is not None)])
            numbers = []
            for seq in requested:
                numbers.append(next_seq if seq is None else seq)
                next_seq += seq is None
            if next_seq - 1 > HIGHEST_SEQ:
                raise InputError(
                    f"source {source} has no sequence numbers left", where="seq", hint="register another source"
                )
            if next_seq > self._bounds[source]:
                bound = next_seq + _BLOCK
                await run_in_threadpool(self._registry.raise_sequence_bound, source, bound)
                self._bounds[source] = bound
            self._next[source] = next_seq
            return numbers


class IntakeResult(NamedTuple):
    accepted: int
    first_seq: int
    last_seq: int


class EventIntake:
    """Accepts the events of a request, all or none. They are durable when it returns.

    An event carries the current attributes of its source.
    """

    def __init__(
        self,
        entities: EntityCache,
        journal: JournalWriter,
        space: Space,
        sequences: SequenceNumbers,
        metrics: Metrics,
        limits: NodeLimits,
    ) -> None:
        self._entities = entities
        self._journal = journal
        self._space = space
        self._sequences = sequences
        self._metrics = metrics
        self._limits = limits

    async def accept(self, source: str, events: Sequence[EventIn], *, bulk: bool, now: int) -> IntakeResult:
        """Accept events of a source of this node. `bulk`: name list items in errors. `now` is the default time."""
        self._check_times(events, bulk, now)
        _check_sources(source, events, bulk)
        points = self._points(source, events, bulk)
        numbers = await self._sequences.take(source, [event.seq for event in events])
        attributes = self._entities.attributes_json(source)
        return await self._journal_events(_records(source, source, attributes, events, numbers, points, now))

    async def accept_remote(
        self,
        remote_source: RemoteSource,
        events: Sequence[EventIn],
        *,
        bulk: bool,
        now: int,
        pass_on: Callable[[RemoteSource, Sequence[Record]], Awaitable[None]] | None = None,
    ) -> IntakeResult:
        """As `accept`, for a source of another node, which has its sequence numbers and its position.

        If its home has a data folder of its own, `pass_on` brings the events there instead.
        """
        self._check_times(events, bulk, now)
        for row, event in enumerate(events):
            for field in ("seq", "x"):
                if getattr(event, field) is None:
                    raise InputError(
                        f"{field} is required from sources of other nodes",
                        where=_where(row, field, bulk),
                        hint="send seq, x and y",
                    )
        _check_sources(remote_source.id, events, bulk)
        points = self._points(remote_source.id, events, bulk)
        numbers = [event.seq or 0 for event in events]
        entity = global_name(remote_source.id, remote_source.home)
        records = _records(entity, remote_source.id, remote_source.attributes, events, numbers, points, now)
        if pass_on is None:
            return await self._journal_events(records)
        await pass_on(remote_source, records)
        return IntakeResult(len(records), numbers[0], numbers[-1])

    async def accept_passed(self, source: str, records: Sequence[Record]) -> None:
        """Accept events of a source of this node that another node took in and checked."""
        attributes = self._entities.attributes_json(source)
        await self._journal_events([record._replace(entity=source, body=attributes) for record in records])

    def _check_times(self, events: Sequence[EventIn], bulk: bool, now: int) -> None:
        for row, event in enumerate(events):
            if event.time is not None:
                check_time(event.time, now, self._limits.ahead, _where(row, "time", bulk))

    async def _journal_events(self, records: Sequence[Record]) -> IntakeResult:
        begun = perf_counter()
        await await_to_the_end(self._journal.append(records))
        self._metrics.journal_seconds.observe(perf_counter() - begun)
        self._metrics.events_accepted.inc(len(records))
        return IntakeResult(len(records), records[0].seq or 0, records[-1].seq or 0)

    def _points(self, source: str, events: Sequence[EventIn], bulk: bool) -> list[tuple[float, float]]:
        default: tuple[float, float] | None = None
        if any(event.x is None for event in events):
            position = self._entities.get(source).position
            default = (position.x, position.y) if position else None
        points = []
        for row, event in enumerate(events):
            if event.x is None or event.y is None:
                if default is None:
                    raise InputError(
                        "neither the event nor its source has a position",
                        where=_where(row, "x", bulk),
                        hint="send x and y, or report the source's position first",
                    )
                points.append(default)
                continue
            try:
                self._space.check_point(event.x, event.y)
            except InputError as error:
                where = _where(row, error.where or "x", bulk)
                raise InputError(error.message, where=where, hint=error.hint) from None
            points.append((event.x, event.y))
        return points


def _records(
    entity: str,
    source: str,
    attributes: str | None,
    events: Sequence[EventIn],
    numbers: Sequence[int],
    points: Sequence[tuple[float, float]],
    now: int,
) -> list[Record]:
    """`source` is the id of the source at its home. `entity` is its name in this journal: `source@home` if its home is
    another node.
    """
    return [
        Record(
            EVENT,
            entity,
            seq,
            event.id or f"{source}:{seq}",
            now if event.time is None else event.time,
            x,
            y,
            event.terms,
            event.readings,
            attributes,
        )
        for event, seq, (x, y) in zip(events, numbers, points, strict=True)
    ]


def _check_sources(source: str, events: Sequence[EventIn], bulk: bool) -> None:
    """Raises PermissionDeniedError for an event of another source than the one whose token was sent."""
    for row, event in enumerate(events):
        if event.source not in (None, source):
            raise PermissionDeniedError(
                f"the token belongs to source {source}",
                where=_where(row, "source", bulk),
                hint="use the token of that source, or omit `source`",
            )


def _where(row: int, field: str, bulk: bool) -> str:
    return f"events[{row}].{field}" if bulk else field
