"""What a node does with one peer, as in `node.peers`: wants out, events in, discovery."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from roamcast.bind.discovery.messages import DiscoveryRequest, DiscoveryResponse
from roamcast.errors import RoamcastError
from roamcast.failures import FailureTracker
from roamcast.node.control.wants import WantsRequest
from roamcast.node.peers.forwarding import decode_events
from roamcast.node.peers.link_offsets import LinkOffsets

if TYPE_CHECKING:
    from roamcast.lab.torture.federation.host import Host, Reply

__all__ = ["PeerLink"]

_HEARTBEAT: Final = 1_000_000
_WAIT: Final = 1_000_000
_EXTRA: Final = 500_000
_PAUSE: Final = 200_000


class PeerLink:
    """The link of a host with one peer. It ends when the host crashes."""

    def __init__(self, peer: str, host: Host) -> None:
        self.failures = FailureTracker()
        self._peer = peer
        self._host = host
        self._offsets = self._open()
        self._heartbeat = 0  # the ticket of the next one; 0 while a request is under way
        self._changed = False

    def join(self) -> None:
        """Start the link."""
        host = self._host
        request = partial(host.requests.join_node, self._peer, linked=True)
        host.submit("join", request, self._start, lambda _: host.later(_PAUSE, self.join))

    def _start(self, _: None) -> None:
        self._host.joining.discard(self._peer)
        self._send_wants()
        self._pull()
        self._discover()

    def _exchange(
        self, send: Callable[[Host, Reply], None], done: Callable[[Any], None], again: Callable[[], None]
    ) -> None:
        """Send a request, and take the response or try again later."""

        def failed(error: object) -> None:
            self.failures.failed(error, since=self._host.wall())
            self._host.later(_PAUSE, again)

        def answered(answer: Any) -> None:
            failed(answer) if isinstance(answer, RoamcastError) else done(answer)

        self._host.simulation.exchange(self._host, self._peer, send, answered, failed, _WAIT + _EXTRA)

    # Wants.

    def wants_changed(self) -> None:
        if self._heartbeat:
            self._send_wants()
        else:
            self._changed = True

    def _send_wants(self) -> None:
        self._heartbeat, self._changed = 0, False
        host = self._host
        host.submit(
            "wants request", partial(host.requests.wants_request, self._peer), self._post_wants, self._wants_failed
        )

    def _post_wants(self, request: WantsRequest) -> None:
        host, sent = self._host, self._host.clock.now()
        after = dict(self._offsets.last_numbers) if host.requests.wants.draining.is_waiting else None
        host.simulation.observe(host.domain, f"sends {self._peer} {request}")

        def take(answer: tuple[int, int, dict[str, int], dict[str, int]]) -> None:
            version, time, journal_ends, drained = answer
            host.simulation.observe(host.domain, f"{self._peer} confirms {version}")
            receive = partial(
                host.requests.receive_wants,
                self._peer,
                request,
                version,
                sent=sent,
                received=host.clock.now(),
                time=time,
                journal_ends=journal_ends,
                drained=drained,
            )
            host.submit("receive wants", receive, show, self._wants_failed)

        def show(more: bool) -> None:
            request = partial(host.requests.show_wants, self._peer)
            host.submit("show wants", request, partial(self._wait, more), self._wants_failed)

        def send(other: Host, reply: Reply) -> None:
            other.apply_wants(host.domain, request, after, reply)

        self._exchange(send, take, self._send_wants)

    def _wait(self, more: bool, _: None) -> None:
        if more or self._changed:
            self._send_wants()
            return
        ticket = self._heartbeat = self._host.simulation.ticket()
        self._host.later(_HEARTBEAT, lambda: self._send_wants() if self._heartbeat == ticket else None)

    def _wants_failed(self, error: Exception) -> None:
        self.failures.failed(error, since=self._host.wall())
        self._host.later(_PAUSE, self._send_wants)

    # Events.

    def _open(self) -> LinkOffsets:
        offsets = self._host.simulation.variant.offsets(self._peer)
        for journal, records in sorted(self._host.disk.journals.items()):
            if offsets.owns(journal):
                offsets.add(journal, len(records))
        return offsets

    def _pull(self) -> None:
        host = self._host
        after, until = dict(self._offsets.last_numbers), host.simulation.now + _WAIT

        def send(other: Host, reply: Reply) -> None:
            other.forward(host.domain, host.link, after, until, reply)

        self._exchange(send, lambda content: host.attempt("pull", partial(self._take_in, content)), self._pull)

    def _take_in(self, content: bytes) -> None:
        host = self._host
        self.failures.succeeded()
        try:
            events = decode_events(content)
            if events is not None:
                append = self._offsets.plan(events)
                host.disk.check()
                host.lost[self._peer] = host.lost.get(self._peer, 0) + append.missing
                self._offsets.note(append, host.disk.append(append.journal, append.records))
                host.simulation.observe(
                    host.domain, f"takes {append.journal} {append.first}, {len(append.records)} events"
                )
                host.received += len(append.records)
        except RoamcastError as error:
            self.failures.failed(error, since=host.wall())
            self._offsets = self._open()
            host.later(_PAUSE, self._pull)
        else:
            self._pull()

    # Discovery.

    def discover_at_once(self) -> None:
        self._poll(lambda: None)

    def _discover(self) -> None:
        self._poll(self._discover)

    def _poll(self, again: Callable[[], None]) -> None:
        host = self._host

        def post(request: DiscoveryRequest) -> None:
            host.simulation.exchange(
                host,
                self._peer,
                lambda other, reply: other.respond_to_discovery(host.domain, request, reply),
                take,
                lambda _: host.later(_PAUSE, again),
                2 * _WAIT + _EXTRA,
            )

        def take(response: DiscoveryResponse | RoamcastError) -> None:
            if isinstance(response, RoamcastError):
                host.later(_PAUSE, again)
                return
            apply = partial(host.requests.apply_discovery, response)
            host.submit("apply discovery", apply, lambda _: host.later(0, again), lambda _: host.later(_PAUSE, again))

        request = partial(host.requests.discovery_request, self._peer)
        host.submit("discover", request, post, lambda _: host.later(_PAUSE, again))
