"""The body of a request that publishes events: JSON, or an Arrow stream if the user has a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from roamcast.client.arrow_tables import ARROW_STREAM, ArrowTable, as_table, stream_body
from roamcast.client.flow import Flow, json_body
from roamcast.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Events", "PublishBody", "publish_body"]

Events = Mapping[str, Any] | Iterable[Mapping[str, Any]] | ArrowTable
"""One event, several, or a `pyarrow.Table` or `RecordBatch` with a row for each."""


class PublishBody(NamedTuple):
    """The content of a request, its headers, and the numbers that events without one have got."""

    content: bytes
    headers: Mapping[str, str]
    numbers: list[int]


def publish_body(events: Events, reserve_numbers: Callable[[int], Flow[list[int]]]) -> Flow[PublishBody]:
    """Number the events that have no `seq`, so that they can be sent again. Raises InputError if there are none."""
    if (table := as_table(events)) is not None:
        _check_count(table.num_rows)
        count = table["seq"].null_count if "seq" in table.column_names else table.num_rows
        numbers = yield from reserve_numbers(count)
        return PublishBody(stream_body(_numbered(table, numbers)), {"content-type": ARROW_STREAM}, numbers)
    rows = [events] if isinstance(events, Mapping) else cast("Iterable[Mapping[str, Any]]", events)
    batch = [dict(event) for event in rows]
    _check_count(len(batch))
    unnumbered = [event for event in batch if event.get("seq") is None]
    numbers = yield from reserve_numbers(len(unnumbered))
    for event, number in zip(unnumbered, numbers, strict=True):
        event["seq"] = number
    return PublishBody(json_body(batch), {}, numbers)


def _numbered(table: pa.Table, numbers: list[int]) -> pa.Table:
    import pyarrow as pa

    if "seq" not in table.column_names:
        return table.append_column("seq", pa.array(numbers, pa.int64()))
    if not numbers:
        return table
    rest = iter(numbers)
    seq = pa.array([next(rest) if seq is None else seq for seq in table["seq"].to_pylist()])
    return table.set_column(table.column_names.index("seq"), "seq", seq)


def _check_count(count: int) -> None:
    if not count:
        raise InputError("no events to publish", where="events", hint="pass at least one")
