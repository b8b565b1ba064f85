"""Whether a backtest is exact: the reasons why its letters may differ from those of the stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from roamcast.archive.reader import Archive, Coverage
from roamcast.backtest.plan import Plan
from roamcast.backtest.request import Request
from roamcast.backtest.stream import Stream
from roamcast.model import global_name, iso
from roamcast.pipeline.query.batch_state import BatchSettings

__all__ = ["Facts", "reasons"]

_HISTORY: Final = BatchSettings().binding_history
_HISTORY_TEXT: Final = "an hour"


class Facts(NamedTuple):
    """What an archive says of itself: its coverage, by node when something was last erased, and of each file the first
    and last batch, and when its last record was written.
    """

    coverage: Mapping[str, Sequence[Coverage]]
    erased: Mapping[str, int]
    files: Sequence[tuple[int, int, int]]

    @classmethod
    def of(cls, archive: Archive) -> Self:
        statistics = (file.statistics for file in archive.files())
        files = [(each.first_batch, each.last_batch, each.end) for each in statistics if each.rows]
        return cls(archive.coverage(), archive.erased(), files)

    def latest_in(self, batch: int) -> int:
        """When the last record of a batch was written, at the latest."""
        return max(end for first, last, end in self.files if first <= batch <= last)


def reasons(
    facts: Facts,
    request: Request,
    plan: Plan,
    stream: Stream,
    found: pa.Table,
    settled: pa.Table,
    archive: Archive | None = None,
) -> Iterator[str]:
    """Each reason is a sentence without a full stop. `found` and `settled` are the same events, the latter in order.

    Without the `archive`, less is known of when batches ended, and more may be approximate.
    """
    coverage = facts.coverage
    if plan.query.query.select.function == "anyof":
        yield "anyof() is free to choose among the sources in range"
    if others := sorted(set(pc.unique(found["journal"]).to_pylist()) - {plan.node}):
        yield f"events of {', '.join(others)} have no fixed order among those of {plan.node}"
    nodes = [node for node in coverage if "+" not in node]
    if len(nodes) < len(coverage):
        yield "of events of other hosts the archive has only those that somebody here wanted"
    if plan.query.plan == "bind" and (len(nodes) > 1 or plan.has_other_sources):
        yield f"sources of other nodes are known only as far as subscriptions of {plan.node} asked for them"
    for node, erased in sorted(facts.erased.items()):
        if erased >= request.begin:
            yield f"entities of {node} were erased at {iso(erased)} and before; what they did is missing"
    if plan.query.query.life_control is not None and len(coverage) > 1:
        yield f"events of other nodes have no fixed order among the stops and starts at {plan.node}"
    if plan.places_changed:
        yield "the places of the node have changed in this time; those of its beginning count"
    yield from _without_last_event(facts, request, plan, stream, found, settled)
    if (late := _some_late(facts, archive, stream, found)) is not None:
        yield (
            f"the batch of events may have ended more than {_HISTORY_TEXT} after their binding, and they may have been "
            f"dropped, such as one of {iso(late)}"
        )


def _without_last_event(
    facts: Facts, request: Request, plan: Plan, stream: Stream, found: pa.Table, settled: pa.Table
) -> Iterator[str]:
    """Why the last event that a binding would have brought may be another one: the archive has none before it, and not
    everything that came before.
    """
    begin = _whole_since(facts.coverage, request.begin)
    for binding in stream.initial:
        home, id = binding["home"], binding["source"]
        if begin is None and home not in facts.erased:
            continue
        is_earlier = pc.and_(pc.equal(settled["home"], home), pc.equal(settled["entity"], id))
        is_earlier = pc.and_(is_earlier, pc.less(settled["offset"], binding["since"]))
        newest = pc.max(found["written"].filter(is_earlier)).as_py()
        name = id if home == plan.node else global_name(id, home)
        if begin is not None and (newest is None or newest <= begin):
            yield f"what {name} had published before {iso(begin)}, from when on the archive is complete, is not known"
        elif newest is None:
            yield f"whether {name} had published before is not known: entities of {home} were erased"


def _whole_since(coverage: Mapping[str, Sequence[Coverage]], time: int) -> int | None:
    """From when on nothing is missing until a time. None if nothing is missing before."""
    begins = []
    for ranges in coverage.values():
        at = max((nth for nth, each in enumerate(ranges) if each.begin <= time), default=0)
        if at > 0 or ranges[at].first_offset > 1:
            begins.append(ranges[at].begin)
    return max(begins, default=None)


def _some_late(facts: Facts, archive: Archive | None, stream: Stream, found: pa.Table) -> int | None:
    """The time of an event for which the stream may have deleted the binding that it meets.

    What it keeps depends on the latest record of the batch.
    """
    lists = found["bindings"].combine_chunks()
    ends = stream.binding_ends(pc.list_flatten(lists).to_numpy())
    has_ended = pc.is_valid(ends)
    parents = pc.list_parent_indices(lists).filter(has_ended.combine_chunks())
    if not len(parents):
        return None
    late = found.take(parents)
    batches, ends = late["batch"].to_pylist(), ends.filter(has_ended).to_pylist()
    latest = {batch: facts.latest_in(batch) for batch in set(batches)}
    if archive is not None and any(latest[batch] - end > _HISTORY for batch, end in zip(batches, ends, strict=True)):
        latest = _latest_of(archive, min(pc.min(late["written"]).as_py(), *ends), latest)
    is_late = (latest[batch] - end > _HISTORY for batch, end in zip(batches, ends, strict=True))
    return next((time for time, late in zip(late["time"].to_pylist(), is_late, strict=True) if late), None)


def _latest_of(archive: Archive, begin: int, batches: Mapping[int, int]) -> dict[int, int]:
    """When the last record of each of these batches was written, given an upper bound."""
    latest = dict.fromkeys(batches, begin)
    wanted = pa.array(list(batches), pa.int64())
    for rows in archive.batch_times(begin, max(batches.values()) + 1):
        rows = rows.filter(pc.is_in(rows["batch"], wanted))
        for row in rows.group_by("batch").aggregate([("written", "max")]).to_pylist():
            latest[row["batch"]] = max(latest[row["batch"]], row["written_max"])
    return latest
