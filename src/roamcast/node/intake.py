"""Intake: events are numbered, then journalled, then acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
from roamcast.settings import NodeLimits
from roamcast.space import Space
from roamcast.store.registry.port import RegistryStore

__all__ = ["Intake", "IntakeResult", "Sequences"]

_BLOCK = 1_000


class Sequences:
    """The numbers that sources use. Belongs to one event loop.

    A bound above all numbers in use is stored before they are used; after a restart numbering goes on from the bound.
    That leaves gaps, which are harmless; a number used twice would lose an event.
    """

    def __init__(self, registry: RegistryStore) -> None:
        self._registry = registry
        self._next: dict[str, int] = {}
        self._bounds: dict[str, int] = {}
        self._changing: dict[str, asyncio.Lock] = {}

    async def next_of(self, source: str) -> int:
        """The next number that would be given out."""
        if source not in self._next:
            bound = await run_in_threadpool(self._registry.sequence_bound, source)
            self._bounds.setdefault(source, bound)
            self._next.setdefault(source, bound)
        return self._next[source]

    async def take(self, source: str, wanted: Sequence[int | None]) -> list[int]:
        """A number for each: the one that is wanted, or else the next above all others."""
        async with self._changing.setdefault(source, asyncio.Lock()):
            following = max([await self.next_of(source), *(seq + 1 for seq in wanted if seq is not None)])
            numbers = []
            for seq in wanted:
                numbers.append(following if seq is None else seq)
                following += seq is None
            if following - 1 > HIGHEST_SEQ:
                raise InputError(
                    f"the numbers of source {source} are used up", where="seq", hint="register another source"
                )
            if following > self._bounds[source]:
                bound = following + _BLOCK
                await run_in_threadpool(self._registry.raise_sequence_bound, source, bound)
                self._bounds[source] = bound
            self._next[source] = following
            return numbers


class IntakeResult(NamedTuple):
    accepted: int
    first_seq: int
    last_seq: int


class Intake:
    """Takes events in, all of a request or none, and returns when they would survive a crash.

    An event carries the attributes that its source has then.
    """

    def __init__(
        self,
        entities: EntityCache,
        journal: JournalWriter,
        space: Space,
        sequences: Sequences,
        metrics: Metrics,
        limits: NodeLimits,
    ) -> None:
        self._entities = entities
        self._journal = journal
        self._space = space
        self._sequences = sequences
        self._metrics = metrics
        self._limits = limits

    async def take(self, source: str, events: Sequence[EventIn], *, bulk: bool, now: int) -> IntakeResult:
        """`bulk` says how to name the event that is wrong; `now` is the time of events that have none."""
        self._check_times(events, bulk, now)
        points = self._points(source, events, bulk)
        numbers = await self._sequences.take(source, [event.seq for event in events])
        attributes = self._entities.attributes_json(source)
        return await self._journalled(source, source, attributes, events, numbers, points, now)

    async def take_from(
        self, remote_source: RemoteSource, events: Sequence[EventIn], *, bulk: bool, now: int
    ) -> IntakeResult:
        """As `take`, of a source that is registered elsewhere: there its numbers are kept, and its position."""
        self._check_times(events, bulk, now)
        for row, event in enumerate(events):
            for field in ("seq", "x"):
                if getattr(event, field) is None:
                    raise InputError(
                        f"{remote_source.id} is of {remote_source.home}, where its number and its position are known",
                        where=_where(row, field, bulk),
                        hint="give seq, x and y",
                    )
        points = self._points(remote_source.id, events, bulk)
        numbers = [event.seq or 0 for event in events]
        entity = global_name(remote_source.id, remote_source.home)
        return await self._journalled(entity, remote_source.id, remote_source.attributes, events, numbers, points, now)

    def _check_times(self, events: Sequence[EventIn], bulk: bool, now: int) -> None:
        for row, event in enumerate(events):
            if event.time is not None:
                check_time(event.time, now, self._limits.ahead, _where(row, "time", bulk))

    async def _journalled(
        self,
        entity: str,
        source: str,
        attributes: str | None,
        events: Sequence[EventIn],
        numbers: Sequence[int],
        points: Sequence[tuple[float, float]],
        now: int,
    ) -> IntakeResult:
        records = [
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
        begun = perf_counter()
        await asyncio.shield(asyncio.wrap_future(self._journal.append(records)))
        self._metrics.journal_seconds.observe(perf_counter() - begun)
        self._metrics.events_accepted.inc(len(records))
        return IntakeResult(len(records), numbers[0], numbers[-1])

    def _points(self, source: str, events: Sequence[EventIn], bulk: bool) -> list[tuple[float, float]]:
        default: tuple[float, float] | None = None
        if any(event.x is None for event in events):
            position = self._entities.get(source).position
            default = (position.x, position.y) if position else None
        points = []
        for row, event in enumerate(events):
            if event.source not in (None, source):
                raise PermissionDeniedError(
                    f"this token is of source {source}",
                    where=_where(row, "source", bulk),
                    hint="use the token of that source, or leave `source` out",
                )
            if event.x is None or event.y is None:
                if default is None:
                    raise InputError(
                        "the event has no point, and its source no position",
                        where=_where(row, "x", bulk),
                        hint="give x and y, or tell the source's position first",
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


def _where(row: int, field: str, bulk: bool) -> str:
    return f"events[{row}].{field}" if bulk else field
