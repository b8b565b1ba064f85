"""Broken forwarding: events are taken from the home, numbered or journalled wrongly."""

from __future__ import annotations

from collections.abc import Mapping

from roamcast.journal.records import REMOVAL, Record
from roamcast.lab.torture.federation.pipeline import Batch, ReferencePipeline
from roamcast.lab.torture.federation.rows import EventRow, PipelineState
from roamcast.node.peers.forwarding import ForwardedEvents, ForwardingQueues, pipeline_key
from roamcast.node.peers.link_offsets import LinkAppend, LinkOffsets

__all__ = [
    "DeletesWhenTaken",
    "DeletesWholeBatch",
    "DropsSilently",
    "EndsAtOnce",
    "ForgetsOffsets",
    "ForwardsEverything",
    "IgnoresMissing",
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
        cut = {
            node: [record._replace(body=None) if record.kind == REMOVAL else record for record in records]
            for node, records in journals.items()
        }
        return super().run(before, cut, through)


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
