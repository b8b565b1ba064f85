"""Broken forwarding: events are taken from the home, numbered or journalled wrongly."""

from __future__ import annotations

from collections.abc import Mapping

from roamcast.journal.records import POSITION, REMOVAL, Record
from roamcast.lab.torture.federation.pipeline import Batch, ReferencePipeline
from roamcast.lab.torture.federation.rows import EventRow, PipelineState
from roamcast.node.peers.forwarding import ForwardedEvents, ForwardingQueues, pipeline_key
from roamcast.node.peers.link_offsets import LinkAppend, LinkOffsets

__all__ = [
    "DeletesWhenTaken",
    "DeletesWholeBatch",
    "DropsSilently",
    "EndsAtOnce",
    "ForgetsEarlierPositions",
    "ForgetsOffsets",
    "ForwardsEverything",
    "IgnoresMissing",
    "MovesAtOnce",
    "NumbersAgain",
]


class DeletesWhenTaken(ForwardingQueues):
    """Events are deleted when they are handed out, not when they are journalled at the other end"""

    def take(self, link: str, after: Mapping[str, int]) -> ForwardedEvents | None:
        events = super().take(link, after)
        if events is not None:
            super().take(link, {**after, events.pipeline: events.first + len(events.events) - 1})
        return events


class DropsSilently(ForwardingQueues):
    """Events that nobody takes are dropped and not counted"""

    def expire(self) -> None:
        counted = self.dropped
        super().expire()
        self.dropped = counted


class DeletesWholeBatch(ForwardingQueues):
    """A whole batch is deleted when its first event is journalled at the other end"""

    def take(self, link: str, after: Mapping[str, int]) -> ForwardedEvents | None:
        office = f"{self._node}@{link}"
        for path in self._outbox.waiting(office):
            letters = self._outbox.read(path)
            if letters[0].number <= after.get(pipeline_key(letters[0].sender), 0):
                self._outbox.remove(path)
        return super().take(link, after)


class ForgetsOffsets(LinkOffsets):
    """After a restart, the last event is not known to be journalled"""

    def add(self, journal: str, last_offset: int) -> None:
        super().add(journal, max(0, last_offset - 1))


class IgnoresMissing(LinkOffsets):
    """What a peer has dropped is not counted"""

    def plan(self, events: ForwardedEvents) -> LinkAppend:
        return super().plan(events)._replace(missing=0)


class EndsAtOnce(ReferencePipeline):
    """Events that are on their way when a subscription is removed do not become letters"""

    def run(self, before: PipelineState, journals: Mapping[str, list[Record]], through: Mapping[str, int]) -> Batch:
        return super().run(before, _without_bodies(journals, REMOVAL), through)


class MovesAtOnce(ReferencePipeline):
    """Events that are on their way when a subscriber moves are matched with its new position"""

    def run(self, before: PipelineState, journals: Mapping[str, list[Record]], through: Mapping[str, int]) -> Batch:
        return super().run(before, _without_bodies(journals, POSITION), through)


class ForgetsEarlierPositions(ReferencePipeline):
    """Earlier positions count in the batch of the move only, not until links are drained"""

    def run(self, before: PipelineState, journals: Mapping[str, list[Record]], through: Mapping[str, int]) -> Batch:
        batch = super().run(before, journals, through)
        for key, stays in batch.state.stays.items():
            batch.state.stays[key] = tuple(
                stay if stay.until is None else stay._replace(drained_in=batch.state.batch) for stay in stays
            )
        return batch


def _without_bodies(journals: Mapping[str, list[Record]], kind: str) -> Mapping[str, list[Record]]:
    return {
        node: [record._replace(body=None) if record.kind == kind else record for record in records]
        for node, records in journals.items()
    }


class ForwardsEverything(ReferencePipeline):
    """Events that came over a link are forwarded again"""

    def may_forward(self, event: EventRow, node: str) -> bool:
        return True


class NumbersAgain(ReferencePipeline):
    """A batch that is repeated after a crash gets new numbers"""

    def run(self, before: PipelineState, journals: Mapping[str, list[Record]], through: Mapping[str, int]) -> Batch:
        batch = super().run(before, journals, through)
        before.numbers.update(batch.state.numbers)
        return batch
