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
    """What an archive says of itself: its coverage, and by node when something was last erased."""

    coverage: Mapping[str, Sequence[Coverage]]
    erased: Mapping[str, int]

    @classmethod
    def of(cls, archive: Archive) -> Self:
        return cls(archive.coverage(), archive.erased())


def reasons(
    facts: Facts, request: Request, plan: Plan, stream: Stream, found: pa.Table, settled: pa.Table
) -> Iterator[str]:
    """Each reason is a sentence without a full stop. `found` and `settled` are the same events, the latter in order."""
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
    if plan.places_changed:
        yield "the places of the node have changed in this time; those of its beginning count"
    if coverage[plan.node][0].first_offset > 1:
        begin = iso(coverage[plan.node][0].begin)
        for source in _without_last_event(plan, stream, settled):
            yield f"whether {source} had published before {begin}, when the archive begins, is not known"
    if (late := _some_late(stream, found)) is not None:
        yield f"events came more than {_HISTORY_TEXT} late, such as one of {iso(late)}, and may have been dropped"


def _without_last_event(plan: Plan, stream: Stream, settled: pa.Table) -> Iterator[str]:
    """The sources whose last event a binding would have brought, and of which the archive has none before it."""
    for binding in stream.initial:
        is_earlier = pc.and_(pc.equal(settled["home"], binding["home"]), pc.equal(settled["entity"], binding["source"]))
        is_earlier = pc.and_(is_earlier, pc.less(settled["offset"], binding["since"]))
        if not pc.any(is_earlier).as_py():
            home, id = binding["home"], binding["source"]
            yield id if home == plan.node else global_name(id, home)


def _some_late(stream: Stream, found: pa.Table) -> int | None:
    """The time of an event for which the stream may have deleted the binding that it meets."""
    lists = found["bindings"].combine_chunks()
    parents = pc.list_parent_indices(lists)
    ends = stream.binding_ends(pc.list_flatten(lists).to_numpy())
    delay = pc.subtract(found["written"].take(parents), ends)
    late = parents.filter(pc.fill_null(pc.greater(delay, _HISTORY), False))
    return found["time"][late[0].as_py()].as_py() if len(late) else None
