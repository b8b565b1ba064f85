"""The forwarding queue of a link at the home of the sources: events that the pipeline left for another data folder."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import orjson

from roamcast.deliver.outbox import PipelineStatus
from roamcast.errors import RoamcastError
from roamcast.failures import Failure, FailureTracker
from roamcast.model import Letter

__all__ = ["ForwardedEvents", "ForwardingQueues", "decode_events", "encode_events"]

log = logging.getLogger(__name__)

_MAX_BYTES: Final = 4 * 1024 * 1024
_SETTLED: Final = 1_000_000_000  # nanoseconds; file times are coarse, so a recently changed folder may change unnoticed


class ForwardedEvents(NamedTuple):
    """Events of one pipeline, as JSON, in order: the first has the number `first`, the others follow densely."""

    pipeline: str
    first: int
    events: tuple[bytes, ...]


class LinkOutbox(Protocol):
    """The part of the outbox that is used here, see `deliver.outbox`. Times are nanoseconds since 1970."""

    def links_of(self, node: str) -> list[str]: ...

    def changed_at(self, office: str) -> int | None: ...

    def waiting(self, office: str) -> list[Path]: ...

    def written_at(self, path: Path) -> int: ...

    def read(self, path: Path) -> list[Letter]: ...

    def remove(self, path: Path) -> None: ...

    def read_status(self) -> PipelineStatus | None: ...


class ForwardingQueues:
    """The queues of all links to one node. Any thread may call."""

    def __init__(
        self,
        outbox: LinkOutbox,
        node: str,
        keep: float,
        clock: Callable[[], int] = time.time_ns,
        max_bytes: int = _MAX_BYTES,
    ) -> None:
        """Events that were not taken for `keep` seconds are dropped. The clock is that of the disk.

        `max_bytes` limits what is taken at a time.
        """
        self._outbox = outbox
        self._node = node
        self.keep = keep
        self._clock = clock
        self._max_bytes = max_bytes
        self._seen_empty: dict[str, int] = {}
        self._last_read: dict[str, tuple[Path, list[Letter]]] = {}  # by link: most files are needed again at once
        self.forwarded = 0
        self.dropped = 0
        """Events that were dropped since the start, because nobody took them in time."""
        self._dropped = FailureTracker()

    def take(self, link: str, after: Mapping[str, int]) -> ForwardedEvents | None:
        """The next events; None if there are none. Deletes what is journalled at the other end.

        `after` has the last number that is, for each pipeline.
        """
        if (changed := self._changed(link)) is None:
            return None
        office = self._office(link)
        for path in self._in_order(self._outbox.waiting(office)):
            letters = self._read(office, path)
            pipeline = pipeline_key(letters[0].sender)
            left = [letter for letter in letters if letter.number > after.get(pipeline, 0)]
            if left:
                return _first_events(pipeline, left, self._max_bytes)
            self._outbox.remove(path)
            self._last_read.pop(office, None)
            self.forwarded += len(letters)
        if self._clock() - changed > _SETTLED:
            self._seen_empty[office] = changed
        return None

    def may_have_events(self, link: str) -> bool:
        """Whether it is worth calling `take`. Looks at the folder only, so that it can be called often."""
        return self._changed(link) is not None

    def drained_through(self, link: str, after: Mapping[str, int]) -> Mapping[str, int]:
        """By node, the offset of its journal up to which every wanted event is journalled at the other end.

        An event may be journalled by another node of this data folder. `after` is as in `take`. Empty if events wait,
        or no pipeline has reported.
        """
        try:
            status = self._outbox.read_status()  # first: then the files of what it has read are there
            for path in self._outbox.waiting(self._office(link)):
                letters = self._read(self._office(link), path)
                if letters[-1].number > after.get(pipeline_key(letters[0].sender), 0):
                    return {}
        except RoamcastError:  # it has just been taken, or `take` will report it
            return {}
        return {} if status is None else status.read_offsets

    def losses(self) -> list[Failure]:
        """What was dropped since the start, and since when."""
        return [] if self._dropped.current is None else [self._dropped.current]

    def expire(self) -> None:
        """Drop events that were not taken in time."""
        oldest = self._clock() - round(self.keep * 1_000_000_000)
        for office in self._outbox.links_of(self._node):
            for path in self._outbox.waiting(office):
                if self._outbox.written_at(path) >= oldest:
                    continue
                count = len(self._outbox.read(path))
                self._outbox.remove(path)
                self.dropped += count
                self._dropped.failed(f"{self.dropped} events were dropped because no peer took them in time")
                log.error("%d events for link %s were not taken within %g s: dropped", count, office, self.keep)

    def _in_order(self, paths: list[Path]) -> list[Path]:
        """Batches of a pipeline by number, those of an earlier pipeline first, though each counts from 0.

        Times only tell which pipeline is earlier: clocks of hosts and storages may be set back between two batches.
        """
        first: dict[str, int] = {}
        for path in paths:
            written = self._outbox.written_at(path)
            first[_sender(path)] = min(written, first.get(_sender(path), written))
        return sorted(paths, key=lambda path: (first[_sender(path)], _sender(path), path.name))

    def _office(self, link: str) -> str:
        return f"{self._node}@{link}"

    def _changed(self, link: str) -> int | None:
        """When the folder of a link changed; None if it has no files, as far as known."""
        office = self._office(link)
        changed = self._outbox.changed_at(office)
        return None if self._seen_empty.get(office) == changed else changed

    def _read(self, office: str, path: Path) -> list[Letter]:
        """The letters of a file. It is read once to send them, which may take several responses, and to delete it."""
        last = self._last_read.get(office)
        if last is None or last[0] != path:
            last = self._last_read[office] = path, self._outbox.read(path)
        return last[1]


def _sender(path: Path) -> str:
    """The pipeline of a batch, with the ending of its file: they are named `<batch>-<pipeline>.json`."""
    return path.name.partition("-")[2]


def pipeline_key(pipeline: str) -> str:
    """A short name of a pipeline, for the names of journals."""
    return sha256(pipeline.encode()).hexdigest()[:8]


def encode_events(events: ForwardedEvents | None) -> bytes:
    """A line with the pipeline and the first number, and a line for each event. Nothing if there are none."""
    if events is None:
        return b""
    return b"\n".join((orjson.dumps([events.pipeline, events.first]), *events.events))


def decode_events(content: bytes) -> ForwardedEvents | None:
    if not content:
        return None
    head, *events = content.split(b"\n")
    pipeline, first = orjson.loads(head)
    if not isinstance(pipeline, str) or not isinstance(first, int) or first < 1:
        raise ValueError("not forwarded events")
    return ForwardedEvents(pipeline, first, tuple(events))


def _first_events(pipeline: str, letters: list[Letter], max_bytes: int) -> ForwardedEvents:
    """As many as fit a response, at least one."""
    events: list[bytes] = []
    size = 0
    for letter in letters:
        event = letter.body.encode()
        size += len(event)
        if events and size > max_bytes:
            break
        events.append(event)
    return ForwardedEvents(pipeline, letters[0].number, tuple(events))
