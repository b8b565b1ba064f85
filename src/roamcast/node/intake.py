"""Event intake: check events, give them sequence numbers, journal them, then acknowledge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.errors import InputError
from roamcast.journal.port import JournalWriter
from roamcast.journal.records import EVENT, ROW_SCHEMA, Record, Records, to_records
from roamcast.model import global_name
from roamcast.node.clock import check_time
from roamcast.node.columns.arrays import NO_TIME, Floats, Integers
from roamcast.node.columns.rows import EventColumns
from roamcast.node.control.entity_cache import EntityCache
from roamcast.node.metrics import Metrics
from roamcast.node.peers.remote_sources import RemoteSource
from roamcast.node.publish_rights import Owners, PublishRights, check_owners, owners_of
from roamcast.node.sequences import SequenceNumbers
from roamcast.node.waiting import await_to_the_end
from roamcast.settings_model import NodeLimits
from roamcast.space import Space

__all__ = ["EventIntake", "IntakeResult", "SourceNumbers"]


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


def _first(flags: npt.NDArray[np.bool_]) -> int | None:
    """The first row that is true."""
    row = int(flags.argmax())
    return row if flags[row] else None


def _where(row: int, field: str, bulk: bool) -> str:
    return f"events[{row}].{field}" if bulk else field
