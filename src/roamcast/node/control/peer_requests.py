"""Requests to the control writer that concern other nodes: discovery, and what nodes want of each other."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

from roamcast.bind.discovery.messages import DiscoveryRequest, DiscoveryResponse
from roamcast.node.clock import Clock
from roamcast.node.control.request_group import RequestGroup
from roamcast.node.control.wants import WantsRequest
from roamcast.node.control.writer import ControlWriter

__all__ = ["PeerRequests"]


class PeerRequests:
    """Submits requests to the control writer. Thread-safe; results are futures."""

    def __init__(self, control: ControlWriter, clock: Clock) -> None:
        self._submit = control.submit
        self._clock = clock
        self.sources = control.peer_sources
        self.wants = control.peer_wants

    def now(self) -> int:
        """The time of this node."""
        return self._clock.now()

    def join_node(self, node: str, *, linked: bool) -> Future[None]:
        """Start to look for the sources of another node. `linked`: it has a data folder of its own."""

        def join(group: RequestGroup) -> None:
            self.sources.join(node)
            if linked:
                self.wants.join(node, group.adapter())

        return self._submit(join, reads=True)

    def leave_node(self, node: str) -> Future[None]:
        """Drop another node, its sources, and what it wants."""

        def leave(group: RequestGroup) -> None:
            group.apply_source_messages(self.sources.leave(node))
            self.wants.own.remove_peer(node)
            self.wants.draining.forget(node)
            self._note_drained(group)
            group.update.add(self.wants.links().remove_peer(node, self._clock.now()))

        return self._submit(leave)

    def discovery_request(self, node: str) -> Future[DiscoveryRequest]:
        """What to request from another node now. Raises NotFoundError."""
        return self._submit(lambda _: self.sources.request(node), reads=True)

    def respond_to_discovery(self, request: DiscoveryRequest) -> Future[DiscoveryResponse]:
        """The response to another node's request."""
        return self._submit(lambda _: self.sources.respond(request), reads=True)

    def apply_discovery(self, response: DiscoveryResponse) -> Future[None]:
        """Apply another node's response."""

        def apply(group: RequestGroup) -> None:
            group.apply_source_messages(self.sources.apply(response))
            if self.sources.is_complete(response.node):  # the response may be an outdated one
                group.node_responds(response.node)

        # Alone: what the other requests of a group look for is only known once they are stored.
        return self._submit(apply, alone=True)

    def expire_silent_nodes(self) -> Future[None]:
        """Drop the sources of nodes that have been silent for too long."""
        return self._submit(lambda group: group.apply_source_messages(self.sources.expire_silent(), silent=True))

    def wants_request(self, node: str) -> Future[WantsRequest]:
        """What to tell a linked node of our wants now."""

        def ask(_: RequestGroup) -> WantsRequest:
            self.wants.draining.ask(node)
            return self.wants.own.request(node)

        return self._submit(ask, reads=True)

    def receive_wants(
        self,
        node: str,
        request: WantsRequest,
        version: int,
        *,
        sent: int,
        received: int,
        time: int,
        journal_ends: Mapping[str, int],
        drained: Mapping[str, int],
    ) -> Future[bool]:
        """Take the response to such a request; whether there is more to send at once. Then call `show_wants`.

        `journal_ends` and `drained` are for `Draining.answer`.
        """

        def receive(group: RequestGroup) -> bool:
            self.wants.own.note_clock(node, sent, received, time)
            more = self.wants.own.receive(node, request, version)
            group.confirm_wants()
            self.wants.draining.answer(node, journal_ends, drained)
            self._note_drained(group)
            return more

        return self._submit(receive)

    def forget_undrained(self) -> Future[None]:
        """Stop waiting for peers with what was removed or moved before the last call."""

        def forget(group: RequestGroup) -> None:
            self.wants.draining.next_period()
            self._note_drained(group)

        return self._submit(forget)

    def _note_drained(self, group: RequestGroup) -> None:
        record = self.wants.draining.record(self._clock.now())
        group.update.records += () if record is None else (record,)

    def show_wants(self, node: str) -> Future[None]:
        """What followed from the last response is journalled: subscriptions may be shown as active."""
        return self._submit(lambda _: self.wants.own.show(node), reads=True)

    def is_linked(self, peer: str, link: str) -> Future[bool]:
        """Whether another node wants events for this link."""
        return self._submit(lambda _: self.wants.links().has(peer, link), reads=True)

    def apply_wants(self, peer: str, request: WantsRequest) -> Future[int]:
        """Store what another node wants of our sources; the version that is in force. Raises CapacityError."""

        def apply(group: RequestGroup) -> int:
            version, update = self.wants.links().apply(peer, request, self._clock.now())
            group.update.add(update)
            return version

        return self._submit(apply)
