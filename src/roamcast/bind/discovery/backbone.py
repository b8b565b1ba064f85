"""A node among all others: it looks for what its subscriptions want, and tells of its own sources. Sans-IO."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from roamcast.bind.discovery.announcer import Announcer
from roamcast.bind.discovery.messages import Answer, Interest, Plan, Request, Sources
from roamcast.bind.discovery.seeker import Seeker
from roamcast.bind.lcesm.messages import Effect, SourceMessage, SourceRegistered, Unwanted, Wanted
from roamcast.errors import NotFoundError
from roamcast.model import local_name

__all__ = ["Backbone"]

_REQUESTS: Final = 1_000  # of a plan, in a question
_ROOM: Final = 100_000


class Backbone:
    """The dealings of one node with each other node.

    Whoever drives it asks every node that is joined with `seeker(node).ask()`, has its `announcer` answer the others,
    gives the binder the messages that come of it, and tells here what the binder did. `limit` is in microseconds;
    there is `room` for so many sources of each other node.
    """

    def __init__(self, node: str, session: int, sources: Sources, limit: int, room: int = _ROOM) -> None:
        self.announcer = Announcer(node, session, sources)
        self._node = node
        self._session = session
        self._limit = limit
        self._room = room
        self._seekers: dict[str, Seeker] = {}
        self._versions = itertools.count(1)
        self._requests: Counter[Request] = Counter()
        self._sought: dict[Plan, set[Request]] = {"bind": set(), "match": set()}
        self._wanted: dict[str, set[str]] = {}

    @property
    def nodes(self) -> tuple[str, ...]:
        """The others."""
        return tuple(self._seekers)

    @property
    def up(self) -> int:
        """How many of them are heard of."""
        return sum(seeker.is_up for seeker in self._seekers.values())

    @property
    def full(self) -> frozenset[str]:
        """Those that have more sources than there is room for."""
        return frozenset(node for node, seeker in self._seekers.items() if seeker.is_full)

    def heard_at(self, node: str) -> int | None:
        """When it was heard last; None if never, or it is not joined."""
        seeker = self._seekers.get(node)
        return None if seeker is None else seeker.heard_at

    def seeker(self, node: str) -> Seeker:
        """Raises NotFoundError for a node that is not joined."""
        if node not in self._seekers:
            raise NotFoundError(f"no node {node!r} is known here", where=node, hint="join it first")
        return self._seekers[node]

    def join(self, node: str) -> None:
        """Another node. One that is joined already stays as it is."""
        if node not in self._seekers and node != self._node:
            self._seekers[node] = Seeker(self._node, self._session, node, self._limit, self._room, self._versions)
            self._look(node)

    def leave(self, node: str) -> list[SourceMessage]:
        """It is no part of the backbone any more."""
        self.announcer.leave(node)
        self._wanted.pop(node, None)
        seeker = self._seekers.pop(node, None)
        return [] if seeker is None else seeker.forget()

    @property
    def matching(self) -> Collection[Request]:
        """What subscriptions of the match plan ask for here."""
        return self._sought["match"]

    def begin_again(self) -> None:
        """Nothing is looked for, and nothing wanted, until it is said again."""
        self._requests.clear()
        self._sought = {"bind": set(), "match": set()}
        self._wanted.clear()

    def look_for(self, request: Request, times: int = 1) -> list[str]:
        """So many subscriptions more, or fewer, that run want this; the nodes to be asked at once."""
        self._requests[request] += times
        sought = self._sought[request.plan]
        if (self._requests[request] > 0) == (request in sought):
            return []
        if request in sought:
            del self._requests[request]
            sought.remove(request)
        else:
            sought.add(request)
        return [node for node in self._seekers if self._look(node)]

    def demand(self, effects: Iterable[Effect]) -> list[str]:
        """Sources of other nodes are wanted, or not any more; the nodes to be told at once."""
        concerned: dict[str, None] = {}
        for effect in effects:
            match effect:
                case Wanted(name) | Unwanted(name):
                    id, node = local_name(name)
                    if node is not None:
                        wanted = self._wanted.setdefault(node, set())
                        (wanted.add if isinstance(effect, Wanted) else wanted.discard)(id)
                        concerned[node] = None
                case _:
                    pass
        return [node for node in concerned if node in self._seekers and self._look(node)]

    def hear(self, answer: Answer, now: int) -> list[SourceMessage]:
        """Raises NotFoundError for a node that is not joined."""
        return self.seeker(answer.node).hear(answer, now)

    def lapse(self, now: int) -> list[SourceMessage]:
        """What has not been heard of for longer than the limit is gone."""
        return [message for seeker in self._seekers.values() for message in seeker.lapse(now)]

    def sources(self) -> Iterator[SourceRegistered]:
        """The sources of all other nodes that are known here, as a new binder is told of them."""
        for node, seeker in self._seekers.items():
            yield from (news.registered(node) for news in seeker.sources.values())

    def _look(self, node: str) -> bool:
        requests = frozenset().union(*(_few(plan, sought) for plan, sought in self._sought.items()))
        return self._seekers[node].look_for(Interest(requests, frozenset(self._wanted.get(node, ()))))


def _few(plan: Plan, sought: set[Request]) -> set[Request]:
    """Who looks for very many things is told of everything: a question must not grow with subscriptions."""
    return sought if len(sought) <= _REQUESTS else {Request(plan, "")}
