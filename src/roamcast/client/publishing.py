"""The body of a request that publishes events: JSON, or an Arrow stream if the user has a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from roamcast.client.arrow_tables import ARROW_STREAM, ArrowTable, as_table, stream_body
from roamcast.client.flow import Flow, json_body
from roamcast.client.numbers import Numbers
from roamcast.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Events", "PublishBody", "publish_body"]

_ARROW: Final = {"content-type": ARROW_STREAM}

Events = Mapping[str, Any] | Iterable[Mapping[str, Any]] | ArrowTable
"""One event, several, or a `pyarrow.Table` or `RecordBatch` with a row for each."""


class PublishBody(NamedTuple):
    """The content of a request, its headers, and the numbers that events without one have got."""

    content: bytes
    headers: Mapping[str, str]
    numbers: Numbers


def publish_body(events: Events, reserve: Callable[[Mapping[str | None, int]], Flow[Numbers]]) -> Flow[PublishBody]:
    """Number the events that have no `seq`, so that they can be sent again. Raises InputError if there are none."""
    if (table := as_table(events)) is not None:
        _check_count(table.num_rows)
        sources, seqs = _column(table, "source"), _column(table, "seq")
        numbers = yield from reserve(_missing(sources, seqs))
        return PublishBody(stream_body(_numbered(table, _fill(sources, seqs, numbers))), _ARROW, numbers)
    rows = [events] if isinstance(events, Mapping) else cast("Iterable[Mapping[str, Any]]", events)
    batch = [dict(event) for event in rows]
    _check_count(len(batch))
    sources, seqs = [event.get("source") for event in batch], [event.get("seq") for event in batch]
    numbers = yield from reserve(_missing(sources, seqs))
    for event, seq in zip(batch, _fill(sources, seqs, numbers), strict=True):
        event["seq"] = seq
    return PublishBody(json_body(batch), {}, numbers)


def _missing(sources: Sequence[str | None], seqs: Sequence[int | None]) -> Counter[str | None]:
    """How many events of each source have no number."""
    return Counter(source for source, seq in zip(sources, seqs, strict=True) if seq is None)


def _fill(sources: Sequence[str | None], seqs: Sequence[int | None], numbers: Numbers) -> list[int]:
    """All numbers, with reserved ones for events that have none."""
    rest = {source: iter(reserved) for source, reserved in numbers.items()}
    return [next(rest[source]) if seq is None else seq for source, seq in zip(sources, seqs, strict=True)]


def _column(table: pa.Table, name: str) -> list[Any]:
    return list(table[name].to_pylist()) if name in table.column_names else [None] * table.num_rows


def _numbered(table: pa.Table, seqs: list[int]) -> pa.Table:
    import pyarrow as pa

    if "seq" not in table.column_names:
        return table.append_column("seq", pa.array(seqs, pa.int64()))
    if not table["seq"].null_count:
        return table
    return table.set_column(table.column_names.index("seq"), "seq", pa.array(seqs))


def _check_count(count: int) -> None:
    if not count:
        raise InputError("no events to publish", where="events", hint="pass at least one")
