"""Links: the paths on which events of other data folders come here. Wants out, events in.

Every node of a data folder sends its own wants. One of them pulls the events of each peer, and appends them to a
journal of their own, where the offset follows from the number of an event: after a restart it continues after the last
one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import orjson

from roamcast.errors import ConflictError, NotFoundError, RoamcastError, UnavailableError
from roamcast.failures import Failure, FailureTracker
from roamcast.journal.reader import LOCK, JournalFolder
from roamcast.journal.records import Record
from roamcast.journal.writer import FileJournal, lock_journal
from roamcast.model import EARLIEST, LATEST
from roamcast.node.control.peer_requests import PeerRequests
from roamcast.node.peers.forwarding import ForwardedEvents, ForwardingQueues, decode_events
from roamcast.node.peers.link_offsets import LinkOffsets
from roamcast.node.peers.peer_file import Peer, Peers
from roamcast.node.peers.remote_sources import RemoteSource, refused_proof
from roamcast.node.peers.signed_http import SignedHttp
from roamcast.node.waiting import await_to_the_end, wait_for

__all__ = ["FORWARDED_EVENTS", "WANTS", "LinkJournals", "PeerLinks"]

log = logging.getLogger(__name__)

WANTS: Final = "/v1/office/wants"
FORWARDED_EVENTS: Final = "/v1/office/forwarded-events"
PASSED_EVENTS: Final = "/v1/office/passed-events"

_HEARTBEAT: Final = 2.0  # seconds between requests that only ask whether the peer still knows our wants
_WAIT: Final = 5.0  # seconds a response may wait for an event
_EXTRA: Final = 3.0  # seconds more for the network
_OTHER_PULLS: Final = 2.0  # seconds until we try again to pull instead of another node of this folder
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0  # seconds
_EXPIRE_EVERY: Final = 5.0  # seconds
_HOUR: Final = 3600.0  # seconds
_LONGEST_REASON: Final = 200  # characters of what a peer says, which /healthz shows


class PeerLinks:
    """The links with all peers that have a data folder of their own. Belongs to one event loop."""

    def __init__(
        self,
        requests: PeerRequests,
        signed_http: SignedHttp,
        peers: Peers,
        journal: Path,
        link_with: Callable[[str], str],
        queues: ForwardingQueues,
    ) -> None:
        """`journal` has all journals of this data folder. `link_with`: the name of the path from a peer."""
        self.requests = requests
        self.signed_http = signed_http
        self.peers = peers
        self.journal = journal
        self.link_with = link_with
        self._queues = queues
        self._links: dict[str, _PeerLink] = {}
        self._expiring: asyncio.Task[None] | None = None
        self.received = 0
        self.lost = 0
        """Events that peers had dropped before they were pulled, since the start."""
        self._lost = FailureTracker()

    def start(self) -> None:
        loop = asyncio.get_running_loop()

        def notify(peers: Iterable[str]) -> None:
            try:
                loop.call_soon_threadsafe(self._notify, tuple(peers))
            except RuntimeError:  # the node is stopping
                log.debug("wants of %s changed while stopping", peers)

        self.requests.wants.notify = notify
        self._expiring = loop.create_task(self._expire())

    async def stop(self) -> None:
        for link in list(self._links.values()):
            await link.stop()
        if self._expiring is not None:
            self._expiring.cancel()

    def add(self, node: str) -> None:
        self._links[node] = _PeerLink(node, self)

    async def remove(self, node: str) -> None:
        if (link := self._links.pop(node, None)) is not None:
            await link.stop()

    def is_linked(self, node: str) -> bool:
        """Whether a peer has a data folder of its own."""
        return node in self._links

    def failures(self) -> dict[str, Failure]:
        """The links on which no events come, and since when. Any thread may call this."""
        current = ((node, link.failures.current) for node, link in list(self._links.items()))
        return {node: failure for node, failure in current if failure is not None}

    def stalled(self) -> dict[str, Failure]:
        """The peers that have no running pipeline, and since when: their events wait. Any thread may call this."""
        current = ((node, link.stalled.current) for node, link in list(self._links.items()))
        return {node: failure for node, failure in current if failure is not None}

    def losses(self) -> list[Failure]:
        """What was lost since the start, and since when."""
        return [] if self._lost.current is None else [self._lost.current]

    def count(self, received: int, lost: int) -> None:
        self.received += received
        if lost:
            self.lost += lost
            self._lost.failed(f"peers had dropped {self.lost} events before they were taken in here")

    async def pass_on(self, source: RemoteSource, records: Sequence[Record]) -> None:
        """Bring events of a source that published here to its home. They are journalled there when this returns.

        Raises AuthenticationError, and UnavailableError; then they may or may not be.
        """
        peer = self.peers.find(source.home)
        if peer is None:
            raise NotFoundError(f"node {source.home!r} has been removed", hint="publish at the home of the source")
        names = ("seq", "id", "time", "x", "y", "terms", "readings")
        events = [{name: getattr(record, name) for name in names} for record in records]
        body = {"id": source.id, "proof": source.proof, "events": events}
        if orjson.loads(await self.signed_http.post(peer, PASSED_EVENTS, orjson.dumps(body))).get("valid") is not True:
            raise refused_proof(source.home)

    def _notify(self, peers: Iterable[str]) -> None:
        for peer in peers:
            if (link := self._links.get(peer)) is not None:
                link.changed.set()

    async def _expire(self) -> None:
        period = max(_HOUR, self._queues.keep)  # at least as long as peers may keep events for us
        next_period = time.monotonic() + period
        while True:
            await asyncio.sleep(_EXPIRE_EVERY)
            try:
                await asyncio.to_thread(self._queues.expire)
                if time.monotonic() > next_period:
                    next_period += period  # first: twice in a row would forget what was removed just now
                    await asyncio.wrap_future(self.requests.forget_undrained())
            except RoamcastError as error:
                log.warning("forwarding queues: %s; retrying", error)


class _PeerLink:
    """The link with one peer."""

    def __init__(self, node: str, links: PeerLinks) -> None:
        self.node = node
        self.changed = asyncio.Event()
        self.failures = FailureTracker()
        self.stalled = FailureTracker()
        self._links = links
        self._tasks = [asyncio.create_task(self._repeat(work)) for work in (self._send_wants, self._pull)]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        pause = 0.0
        while True:
            try:
                await work()
                pause = 0.0
            except Exception as error:  # the next attempt may succeed
                if not pause:
                    known = isinstance(error, RoamcastError)
                    log.info("link with %s: %s; retrying", self.node, error, exc_info=not known)
                self.failures.failed(error)
                pause = min(_LONGEST_PAUSE, 2 * pause or _FIRST_PAUSE)
                await asyncio.sleep(pause)

    def _peer(self) -> Peer:
        peer = self._links.peers.find(self.node)
        if peer is None:
            raise NotFoundError(f"node {self.node!r} has been removed")
        return peer

    async def _send_wants(self) -> None:
        self.changed.clear()
        requests = self._links.requests
        request = await asyncio.wrap_future(requests.wants_request(self.node))
        after = await asyncio.to_thread(self._journalled) if requests.wants.draining.is_waiting else None
        sent = requests.now()
        body = orjson.dumps({**request._asdict(), "after": after})
        response = orjson.loads(await self._links.signed_http.post(self._peer(), WANTS, body))
        version, at, stalled = (response.get(name) for name in ("version", "time", "no_pipeline"))
        ends, drained = response.get("journal_ends"), response.get("drained")
        if (
            not isinstance(version, int)
            or not isinstance(at, int)
            or not EARLIEST <= at <= LATEST
            or not isinstance(stalled, str | None)
            or not _are_offsets(ends)
            or not _are_offsets(drained)
        ):
            raise UnavailableError(f"invalid response from {self.node}", hint="run the same version on both nodes")
        if stalled is None:
            self.stalled.succeeded()
        else:
            self.stalled.failed(stalled[:_LONGEST_REASON])
        taken = requests.receive_wants(
            self.node,
            request,
            version,
            sent=sent,
            received=requests.now(),
            time=at,
            journal_ends=ends,
            drained=drained,
        )
        more = await asyncio.wrap_future(taken)
        await asyncio.wrap_future(requests.show_wants(self.node))
        if not more:
            await wait_for(self.changed, _HEARTBEAT)

    def _journalled(self) -> dict[str, int]:
        """The last number that is journalled, for each pipeline of the peer, whichever node pulls."""
        journals = LinkJournals(self._links.journal, self.node)
        journals.open()
        return journals.last_numbers()

    async def _pull(self) -> None:
        """Pull until something fails, unless another node of this folder does.

        The time of the lock file is that of the last response, so that the others know whether events come.
        """
        links = self._links
        try:
            lock = await asyncio.to_thread(lock_journal, links.journal, f"{self.node}+link")
        except ConflictError:
            silent = time.time() - (links.journal / f"{self.node}+link{LOCK}").stat().st_mtime
            if silent > _WAIT + 2 * _EXTRA:
                raise UnavailableError(
                    f"the node of this data folder that pulls the events of {self.node} has had no response for "
                    f"{silent:.0f} s",
                    hint="check the other nodes of this data folder",
                ) from None
            self.failures.succeeded()
            await asyncio.sleep(_OTHER_PULLS)
            return
        lanes = LinkJournals(links.journal, self.node)
        try:
            await asyncio.to_thread(lanes.open)
            wait = 0.0  # a response shows that the link works: the first one must not wait for an event
            while True:
                request = orjson.dumps(
                    {"link": links.link_with(self.node), "after": lanes.last_numbers(), "wait": wait}
                )
                content = await links.signed_http.post(self._peer(), FORWARDED_EVENTS, request, wait + _EXTRA)
                wait = _WAIT
                os.utime(lock)
                self.failures.succeeded()
                if (events := decode_events(content)) is not None:
                    links.count(len(events.events), await lanes.append(events))
        finally:  # without awaiting anything: the task may be cancelled again
            lanes.close()
            os.close(lock)


def _are_offsets(value: object) -> bool:
    """Whether it is offsets by node."""
    return isinstance(value, dict) and all(isinstance(offset, int) for offset in value.values())


class LinkJournals:
    """The journals in which the events of one peer are, see `link_offsets`."""

    def __init__(self, root: Path, peer: str) -> None:
        self._root = root
        self._offsets = LinkOffsets(peer)
        self._open: dict[str, FileJournal] = {}  # by pipeline

    def open(self) -> None:
        """Find out which events are journalled. Raises StorageError and CorruptionError."""
        for path in sorted(self._root.iterdir()) if self._root.is_dir() else ():
            if path.is_dir() and self._offsets.owns(path.name):
                self._offsets.add(path.name, JournalFolder(self._root, path.name).last_offset())

    def close(self) -> None:
        """Blocks until what is being written is on disk."""
        for journal in self._open.values():
            journal.close()

    def last_numbers(self) -> dict[str, int]:
        """The last number that is journalled, for each pipeline of the peer."""
        return self._offsets.last_numbers

    async def append(self, events: ForwardedEvents) -> int:
        """Journal events durably; returns how many are missing before them."""
        append = await asyncio.to_thread(self._offsets.plan, events)
        journal = self._open.get(events.pipeline)
        if journal is None or append.is_new_journal:
            if journal is not None:
                await asyncio.to_thread(journal.close)
            journal = await asyncio.to_thread(FileJournal, self._root, append.journal, linger=0)
            self._open[events.pipeline] = journal
        self._offsets.note(append, await await_to_the_end(journal.append(append.records)))
        return append.missing
