"""Intake: check events, give them sequence numbers, journal them, then acknowledge. Check reported positions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from starlette.concurrency import run_in_threadpool

from roamcast.errors import InputError
from roamcast.journal.port import JournalWriter
from roamcast.journal.records import EVENT, ROW_SCHEMA, Record, Records, to_records
from roamcast.model import Position, global_name
from roamcast.node.clock import check_time
from roamcast.node.columns.arrays import NO_TIME, Floats, Integers
from roamcast.node.columns.rows import EventColumns, PositionColumns
from roamcast.node.control.entity_cache import EntityCache
from roamcast.node.metrics import Metrics
from roamcast.node.peers.remote_sources import RemoteSource
from roamcast.node.publish_rights import Owners, PublishRights, check_owners, owners_of
from roamcast.node.schemas import HIGHEST_SEQ
from roamcast.node.waiting import await_to_the_end
from roamcast.settings_model import NodeLimits
from roamcast.space import Space
from roamcast.store.registry.port import RegistryStore

__all__ = ["EventIntake", "IntakeResult", "SequenceNumbers", "SourceNumbers", "positions_of"]

_BLOCK = 1_000
_REQUESTS = 20  # of the same size, after which a bound is stored again


class SourceNumbers(NamedTuple):
    """The numbers of a source's first and last event in a request."""

    source: str
    first_seq: int
    last_seq: int


class IntakeResult(NamedTuple):
    """How many events were accepted, the numbers of the first and the last, and those of each source.

    The sources are in the order of their first events.
    """

    accepted: int
    first_seq: int
    last_seq: int
    sources: Sequence[SourceNumbers]


class SequenceNumbers:
    """The sequence numbers of sources. Belongs to one event loop.

    A bound above all numbers in use is stored before they are used. After a restart, numbering continues from the
    bound. The gaps are harmless; a number used twice would lose an event.
    """

    def __init__(self, registry: RegistryStore) -> None:
        self._registry = registry
        self._next: dict[str, int] = {}
        self._bounds: dict[str, int] = {}

    async def next_of(self, source: str) -> int:
        """The number that the next event would get."""
        await self._load([source])
        return self._next[source]

    async def reserve(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Reserve consecutive numbers of each source; returns the first ones."""
        sources = list(counts)
        await self._load(sources)
        bases = self._next_of(sources)
        await self._advance(sources, bases, bases + np.array(list(counts.values()), np.int64))
        return dict(zip(sources, bases.tolist(), strict=True))

    async def take(self, sources: Sequence[str], source_of: Integers, requested: Integers) -> Integers:
        """A number for each event: the requested one, or for 0 the next of its source above all others.

        `source_of` has the index of each event's source in `sources`.
        """
        await self._load(sources)
        bases = self._next_of(sources)
        np.maximum.at(bases, source_of, requested + 1)
        is_open = requested == 0
        numbers = requested.copy()
        numbers[is_open] = bases[source_of[is_open]] + _ranks(source_of[is_open])
        following = bases + np.bincount(source_of[is_open], minlength=len(sources))
        await self._advance(sources, bases, following)
        return numbers

    def _next_of(self, sources: Sequence[str]) -> Integers:
        """The next numbers. Call `_advance` without a pause in between, so that none is given out twice."""
        return np.array([self._next[source] for source in sources], np.int64)

    async def _advance(self, sources: Sequence[str], bases: Integers, following: Integers) -> None:
        """Continue the numbers of each source from `following`, once bounds above are stored."""
        if following.max() - 1 > HIGHEST_SEQ:
            source = sources[int(following.argmax())]
            raise InputError(
                f"source {source} has no sequence numbers left", where="seq", hint="register another source"
            )
        self._next.update(zip(sources, following.tolist(), strict=True))
        raised = following + np.maximum(_BLOCK, _REQUESTS * (following - bases))
        higher = {
            source: bound
            for source, after, bound in zip(sources, following.tolist(), raised.tolist(), strict=True)
            if after > self._bounds[source]
        }
        if higher:
            await run_in_threadpool(self._registry.raise_sequence_bounds, higher)
            for source, bound in higher.items():
                self._bounds[source] = max(bound, self._bounds[source])

    async def _load(self, sources: Sequence[str]) -> None:
        unknown = [source for source in sources if source not in self._next]
        if unknown:
            for source, bound in (await run_in_threadpool(self._registry.sequence_bounds, unknown)).items():
                self._bounds.setdefault(source, bound)
                self._next.setdefault(source, bound)


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

    async def accept(self, rights: PublishRights, events: EventColumns, *, bulk: bool, now: int) -> IntakeResult:
        """Accept events of sources of this node. `bulk`: errors name the row. `now` is the default time.

        Rights are checked again once the events have numbers: what follows does not wait for anything, so that nobody
        else can have got the id of a source in between.
        """
        self._check_times(events, bulk, now)
        sources = _sources(events, rights, bulk)
        x, y = self._points(sources, events, bulk)
        attributes = [self._entities.attributes_json(source) for source in sources.ids]
        numbers = await self._sequences.take(sources.ids, sources.of_row, events.seq)
        _check_rights(sources, rights, bulk)
        rows = _rows(sources.ids, sources, attributes, events, numbers, x, y, now)
        await self._journal_events(rows)
        return _result(sources, numbers)

    async def accept_remote(
        self,
        remote_source: RemoteSource,
        events: EventColumns,
        *,
        bulk: bool,
        now: int,
        pass_on: Callable[[RemoteSource, Sequence[Record]], Awaitable[None]] | None = None,
    ) -> IntakeResult:
        """As `accept`, for a source of another node, which has its sequence numbers and its position.

        If its home has a data folder of its own, `pass_on` brings the events there instead.
        """
        self._check_times(events, bulk, now)
        if (row := _first((events.seq == 0) | np.isnan(events.x))) is not None:
            field = "seq" if events.seq[row] == 0 else "x"
            raise InputError(
                f"{field} is required from sources of other nodes",
                where=_where(row, field, bulk),
                hint="send seq, x and y",
            )
        sources = _sources(events, PublishRights.of_source(remote_source.id), bulk)
        x, y = self._points(sources, events, bulk)
        entity = global_name(remote_source.id, remote_source.home)
        rows = _rows([entity], sources, [remote_source.attributes], events, events.seq, x, y, now)
        if pass_on is None:
            await self._journal_events(rows)
        else:
            await pass_on(remote_source, to_records(rows))
        return _result(sources, events.seq)

    async def accept_passed(self, source: str, records: Sequence[Record]) -> None:
        """Accept events of a source of this node that another node took in and checked."""
        attributes = self._entities.attributes_json(source)
        await self._journal_events([record._replace(entity=source, body=attributes) for record in records])

    def _check_times(self, events: EventColumns, bulk: bool, now: int) -> None:
        latest = now + round(self._limits.ahead * 1_000_000)
        if (row := _first(events.time > latest)) is not None:
            check_time(int(events.time[row]), now, self._limits.ahead, _where(row, "time", bulk))

    async def _journal_events(self, records: Records) -> None:
        begun = perf_counter()
        await await_to_the_end(self._journal.append(records))
        self._metrics.journal_seconds.observe(perf_counter() - begun)
        self._metrics.events_accepted.inc(len(records))

    def _points(self, sources: Owners, events: EventColumns, bulk: bool) -> tuple[Floats, Floats]:
        x, y = events.x, events.y
        open_rows = np.isnan(x)
        if open_rows.any():
            default_x, default_y = self._default_points(sources, open_rows)
            x = np.where(open_rows, default_x[sources.of_row], x)
            y = np.where(open_rows, default_y[sources.of_row], y)
        if (row := _first(~(self._space.valid_points(x, y) | (open_rows & ~np.isnan(x))))) is None:
            return x, y
        if np.isnan(x[row]):
            raise InputError(
                "neither the event nor its source has a position",
                where=_where(row, "x", bulk),
                hint="send x and y, or report the source's position first",
            )
        try:
            self._space.check_point(float(x[row]), float(y[row]))
        except InputError as error:
            where = _where(row, error.where or "x", bulk)
            raise InputError(error.message, where=where, hint=error.hint) from None
        return x, y

    def _default_points(self, sources: Owners, open_rows: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """The positions of the sources that need them; NaN for others, and for those without."""
        x, y = np.full((2, len(sources.ids)), np.nan)
        for index in np.unique(sources.of_row[open_rows]):
            if (position := self._entities.get(sources.ids[index]).position) is not None:
                x[index], y[index] = position.x, position.y
        return x, y


def positions_of(
    columns: PositionColumns, rights: PublishRights, space: Space, ahead: float, *, bulk: bool, now: int
) -> list[Position]:
    """The positions of a request. `now` is the default time, and times may be `ahead` seconds after it.

    Raises PermissionDeniedError, and InputError for the first invalid row. `bulk`: errors name the row.
    """

    def where(row: int, field: str) -> str:
        return f"positions[{row}].{field}" if bulk else field

    owners = owners_of(columns.entity, rights, "entity", where)
    x, y = columns.x, columns.y
    times = np.where(columns.time == NO_TIME, now, columns.time)
    bad = ~space.valid_points(x, y) | (times > now + round(ahead * 1_000_000))
    if bad.any():
        row = int(bad.argmax())
        try:
            space.check_point(float(x[row]), float(y[row]))
        except InputError as error:
            raise InputError(error.message, where=where(row, error.where or "x"), hint=error.hint) from None
        check_time(int(times[row]), now, ahead, where(row, "time"))
    entities = [owners.ids[owner] for owner in owners.of_row]
    return list(map(Position, entities, x.tolist(), y.tolist(), times.tolist()))


def _sources(events: EventColumns, rights: PublishRights, bulk: bool) -> Owners:
    return owners_of(events.source, rights, "source", lambda row, field: _where(row, field, bulk))


def _check_rights(sources: Owners, rights: PublishRights, bulk: bool) -> None:
    check_owners(sources, rights, "source", lambda row, field: _where(row, field, bulk))


def _rows(
    entities: Sequence[str],
    sources: Owners,
    attributes: Sequence[str | None],
    events: EventColumns,
    numbers: Integers,
    x: Floats,
    y: Floats,
    now: int,
) -> pa.RecordBatch:
    """`entities` are the names of the sources in this journal: `source@home` if their home is another node."""
    ids = events.id
    if ids.null_count:
        texts = pa.array(numbers).cast(pa.string())
        ids = pc.coalesce(ids, pc.binary_join_element_wise(_each(sources.ids, sources), texts, ":"))
    times = np.where(events.time == NO_TIME, now, events.time)
    columns = {
        "kind": pa.repeat(pa.scalar(EVENT, pa.string()), len(events)),
        "entity": _each(entities, sources),
        "seq": pa.array(numbers),
        "id": ids,
        "time": pa.array(times).cast(ROW_SCHEMA.field("time").type),
        "x": pa.array(x),
        "y": pa.array(y),
        "terms": events.terms,
        "readings": events.readings,
        "body": _each(attributes, sources),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in ROW_SCHEMA.names], schema=ROW_SCHEMA)


def _each(texts: Sequence[str | None], sources: Owners) -> pa.StringArray:
    """For each event the text of its source."""
    if len(texts) == 1:
        return pa.repeat(pa.scalar(texts[0], pa.string()), len(sources.of_row))
    return pa.array(texts, pa.string()).take(pa.array(sources.of_row))


def _result(sources: Owners, numbers: Integers) -> IntakeResult:
    firsts, lasts = numbers[sources.first_rows()].tolist(), numbers[sources.last_rows()].tolist()
    of_sources = zip(sources.ids, firsts, lasts, strict=True)
    return IntakeResult(len(numbers), int(numbers[0]), int(numbers[-1]), [SourceNumbers(*each) for each in of_sources])


def _ranks(groups: Integers) -> Integers:
    """How many elements of the same group come before each."""
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    ranks = np.empty_like(groups)
    ranks[order] = np.arange(len(groups)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return ranks


def _first(flags: npt.NDArray[np.bool_]) -> int | None:
    """The first row that is true."""
    row = int(flags.argmax())
    return row if flags[row] else None


def _where(row: int, field: str, bulk: bool) -> str:
    return f"events[{row}].{field}" if bulk else field
