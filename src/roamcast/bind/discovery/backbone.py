"""One node among its peers: requests sources for local subscriptions and announces local sources. Sans-IO."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from roamcast.bind.discovery.announcer import Announcer
from roamcast.bind.discovery.match_requests import MatchRequests
from roamcast.bind.discovery.messages import DiscoveryInterest, DiscoveryResponse, LocalSources, SourceRequest
from roamcast.bind.discovery.requester import PeerRequester
from roamcast.bind.lcesm.messages import Effect, SourceDemanded, SourceIdle, SourceMessage, SourceRegistered
from roamcast.errors import NotFoundError
from roamcast.lacl import Plan
from roamcast.model import split_name

__all__ = ["Backbone"]

_MAX_REQUESTS: Final = 1_000  # of each plan, sent to a peer
_MAX_LOCAL_REQUESTS: Final = 10_000  # of plan match, as far as larger cells reduce them
_CAPACITY: Final = 100_000


class Backbone:
    """A node's requesters, one for each peer, and its announcer.

    The driver sends `requester(peer).request()` to every peer, lets `announcer` respond to theirs, passes the messages
    returned here to the binder, and the binder's effects to `apply_demand`. `timeout` is in microseconds; `capacity`
    limits the sources of each peer, see `PeerRequester`.
    """

    def __init__(self, node: str, session: int, sources: LocalSources, timeout: int, capacity: int = _CAPACITY) -> None:
        self.announcer = Announcer(node, session, sources)
        self._node = node
        self._session = session
        self._timeout = timeout
        self._capacity = capacity
        self._requesters: dict[str, PeerRequester] = {}
        self._versions = itertools.count(1)
        self._bind_requests: Counter[SourceRequest] = Counter()
        self.match_requests = MatchRequests(_MAX_LOCAL_REQUESTS)
        """The requests of local subscriptions of plan match."""
        self._sent_match_requests = MatchRequests(_MAX_REQUESTS)
        self._demanded: dict[str, set[str]] = {}  # by peer

    @property
    def peers(self) -> tuple[str, ...]:
        return tuple(self._requesters)

    @property
    def reachable(self) -> int:
        """The number of peers that respond."""
        return sum(requester.is_reachable for requester in self._requesters.values())

    @property
    def over_capacity(self) -> frozenset[str]:
        """Peers with more requested sources than the capacity allows."""
        return frozenset(peer for peer, requester in self._requesters.items() if requester.is_full)

    def requester(self, peer: str) -> PeerRequester:
        """Raises NotFoundError for an unknown peer."""
        if peer not in self._requesters:
            raise NotFoundError(f"unknown node {peer!r}", where=peer, hint="join it first")
        return self._requesters[peer]

    def add_peer(self, peer: str) -> None:
        """Start discovery with a node. Does nothing for a known peer or this node itself."""
        if peer not in self._requesters and peer != self._node:
            self._requesters[peer] = PeerRequester(
                self._node, self._session, peer, self._timeout, self._capacity, self._versions
            )
            self._update_interest(peer)

    def remove_peer(self, peer: str) -> list[SourceMessage]:
        """Stop discovery with a node. Returns messages for the binder."""
        self.announcer.remove_peer(peer)
        self._demanded.pop(peer, None)
        requester = self._requesters.pop(peer, None)
        return [] if requester is None else requester.reset()

    def reset_interest(self) -> None:
        """Forget all requests and demand. They are to be reported again."""
        self._bind_requests.clear()
        self.match_requests.clear()
        self._sent_match_requests.clear()
        self._demanded.clear()

    def add_requests(self, request: SourceRequest, count: int = 1) -> list[str]:
        """Add running subscriptions with this request, or remove them if `count` is negative.

        Returns the peers to poll at once.
        """
        if request.plan == "match":
            self.match_requests.add(request, count)
            self._sent_match_requests.add(request, count)
            has_changed = bool(self._sent_match_requests.changed)
            self._sent_match_requests.changed.clear()
        else:
            before = self._bind_requests[request]
            self._bind_requests[request] = before + count
            if before + count <= 0:
                del self._bind_requests[request]
            has_changed = (before > 0) != (before + count > 0)
        return [peer for peer in self._requesters if self._update_interest(peer)] if has_changed else []

    def apply_demand(self, effects: Iterable[Effect]) -> list[str]:
        """Note which remote sources the binder's effects make demanded or idle. Returns the peers to poll at once."""
        concerned: dict[str, None] = {}
        for effect in effects:
            match effect:
                case SourceDemanded(name) | SourceIdle(name):
                    id, peer = split_name(name)
                    if peer is not None:
                        demanded = self._demanded.setdefault(peer, set())
                        (demanded.add if isinstance(effect, SourceDemanded) else demanded.discard)(id)
                        concerned[peer] = None
                case _:
                    pass
        return [peer for peer in concerned if peer in self._requesters and self._update_interest(peer)]

    def receive(self, response: DiscoveryResponse, now: int) -> list[SourceMessage]:
        """Take a peer's response. Returns messages for the binder. Raises NotFoundError for an unknown peer."""
        return self.requester(response.node).receive(response, now)

    def expire(self, now: int) -> list[SourceMessage]:
        """Drop the sources of peers that do not respond any more. Returns messages for the binder."""
        return [message for requester in self._requesters.values() for message in requester.expire(now)]

    def remote_sources(self) -> Iterator[SourceRegistered]:
        """The known sources of all peers, as messages for a new binder."""
        for peer, requester in self._requesters.items():
            yield from (source.to_registration(peer) for source in requester.sources.values())

    def _update_interest(self, peer: str) -> bool:
        bind = _limit("bind", self._bind_requests)
        requests = frozenset((*bind, *_limit("match", self._sent_match_requests.requests)))
        return self._requesters[peer].set_interest(DiscoveryInterest(requests, frozenset(self._demanded.get(peer, ()))))


def _limit(plan: Plan, requests: Collection[SourceRequest]) -> Collection[SourceRequest]:
    """Bound the size of a message: too many requests become one for all sources."""
    return requests if len(requests) <= _MAX_REQUESTS else {SourceRequest(plan)}
