"""Where the events of a peer are journalled: `<peer>+<pipeline>+<before>`. Sans-IO.

Each of these journals has the events of one pipeline of the peer from number `before` + 1 on: the offset of an event
follows from its number. If the peer had to drop events, the rest goes to a new journal.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

import orjson

from roamcast.errors import ConflictError, InputError, UnavailableError
from roamcast.journal.records import FORWARDED, LAST_KNOWN, Record
from roamcast.model import EPOCH, global_name
from roamcast.node.peers.forwarding import ForwardedEvents

__all__ = ["LinkAppend", "LinkOffsets"]


class LinkAppend(NamedTuple):
    """Records to append to a journal. `missing` events before the first are lost."""

    journal: str
    pipeline: str
    first: int
    records: list[Record]
    missing: int
    is_new_journal: bool


class LinkOffsets:
    """Which events of one peer are journalled."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._before: dict[str, int] = {}  # by pipeline
        self.last_numbers: dict[str, int] = {}
        """The last number that is journalled, for each pipeline of the peer."""

    def owns(self, journal: str) -> bool:
        """Whether a journal has events of this peer."""
        peer, _, rest = journal.partition("+")
        return peer == self._peer and rest.partition("+")[2].isdecimal()

    def add(self, journal: str, last_offset: int) -> None:
        """A journal of this peer exists."""
        _, pipeline, before = journal.split("+")
        last = int(before) + last_offset
        if last >= self.last_numbers.get(pipeline, 0):
            self._before[pipeline], self.last_numbers[pipeline] = int(before), last

    def plan(self, events: ForwardedEvents) -> LinkAppend:
        """What to append. Raises UnavailableError for events that are journalled, InputError for anything else."""
        pipeline = events.pipeline
        last = self.last_numbers.get(pipeline, 0)
        if events.first <= last:
            raise UnavailableError(f"{self._peer} sent events again that are journalled", hint="check its version")
        missing = events.first - last - 1
        is_new_journal = missing > 0 or pipeline not in self._before
        before = events.first - 1 if is_new_journal else self._before[pipeline]
        records = [_record(event, self._peer) for event in events.events]
        journal = f"{self._peer}+{pipeline}+{before}"
        return LinkAppend(journal, pipeline, events.first, records, missing, is_new_journal)

    def note(self, append: LinkAppend, offset: int) -> None:
        """The records are journalled, the first at this offset. Raises ConflictError if that is a wrong one."""
        before = int(append.journal.rpartition("+")[2])
        if before + offset != append.first:
            raise ConflictError(f"event {append.first} of {self._peer} got offset {offset}", hint="report this bug")
        self._before[append.pipeline] = before
        self.last_numbers[append.pipeline] = append.first + len(append.records) - 1


def _record(content: bytes, home: str) -> Record:
    """The record of a forwarded event. Raises InputError if the peer sent something else."""
    try:
        letter = orjson.loads(content)
        event, attributes = letter["event"], letter["attributes"]
        if letter["kind"] not in (FORWARDED, LAST_KNOWN) or "@" in event["source"]:
            raise ValueError(f"a {letter['kind']!r} of {event['source']!r}")
        return Record(
            letter["kind"],
            global_name(event["source"], home),
            event["seq"],
            event["id"],
            (datetime.fromisoformat(event["time"]) - EPOCH) // timedelta(microseconds=1),
            event["x"],
            event["y"],
            event["terms"],
            event["readings"],
            None if attributes is None else orjson.dumps(attributes).decode(),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{home} forwarded something that is not an event: {error}") from error
