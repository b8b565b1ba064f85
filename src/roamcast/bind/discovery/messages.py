"""The messages of discovery: standing requests for sources, and announcements of sources that satisfy them. Sans-IO.

Every node polls every other node. A request says which sources the node looks for, which sources it wants to send
events, and up to where it has received announcements. The response comes as soon as there is something to announce, or
after a timeout. Requests and responses may be lost, delayed or duplicated, so each carries its full context. A session
number grows with every start of a node; announcements are numbered within a session.

An `Announcer` responds to requests, a `PeerRequester` sends them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, Protocol

import orjson

from roamcast.bind.discovery.cells import Cell
from roamcast.bind.lcesm.messages import Attributes, SourceRegistered
from roamcast.lacl import Plan, Query, normalise, plan_of
from roamcast.lacl.codec import condition_from_json, condition_to_json
from roamcast.lacl.conditions import may_hold
from roamcast.lacl.syntax import Condition
from roamcast.model import Position, global_name

__all__ = [
    "AnnouncementCursor",
    "DiscoveryInterest",
    "DiscoveryRequest",
    "DiscoveryResponse",
    "LocalSources",
    "SourceAnnouncement",
    "SourceRequest",
    "request_of",
]


class SourceRequest(NamedTuple):
    """A standing request for sources whose attributes satisfy a condition.

    `condition` is in normal form and encoded as JSON, so that it can be compared, stored and sent as it is. The empty
    text admits every source.

    Sources for plan bind are announced wherever they are: the node of the subscriber decides which one is best.
    Sources for plan match are not announced; they are only asked to send events, if they may be in the `cell`: it
    contains the region of the subscription. None is everywhere.
    """

    plan: Plan
    condition: str = ""
    cell: Cell | None = None

    @classmethod
    def of(cls, plan: Plan, condition: Condition | None, cell: Cell | None = None) -> SourceRequest:
        """The request for a condition. Equivalent conditions give equal requests."""
        text = "" if condition is None else orjson.dumps(condition_to_json(normalise(condition))).decode()
        return cls(plan, text, cell)

    def accepts(self, attributes: Attributes) -> bool:
        """Whether a source with these attributes may satisfy the condition.

        Raises ValueError or InputError for an invalid condition.
        """
        condition = _decode_condition(self.condition)
        return condition is None or may_hold(condition, attributes)


def request_of(query: Query, cell: Cell | None = None) -> SourceRequest:
    """The request that a subscription makes to other nodes. The cell contains its region."""
    return SourceRequest.of(plan_of(query), query.source_condition, cell)


@lru_cache(maxsize=100_000)
def _decode_condition(text: str) -> Condition | None:
    return condition_from_json(orjson.loads(text)) if text else None


class DiscoveryInterest(NamedTuple):
    """What a node wants from a peer: its standing requests, and the peer's sources it needs events of."""

    requests: frozenset[SourceRequest] = frozenset()
    demanded: frozenset[str] = frozenset()

    @property
    def match_requests(self) -> frozenset[SourceRequest]:
        return frozenset(request for request in self.requests if request.plan == "match")

    def without_bind_requests(self) -> DiscoveryInterest:
        """The same interest, but for which no source is announced."""
        return self._replace(requests=self.match_requests)


class AnnouncementCursor(NamedTuple):
    """An offset in the announcements of a node: its session, and the last number in it."""

    session: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class DiscoveryRequest:
    """A poll of one node by another. `cursor` is the last announcement received.

    `interest` is None if the peer already has this `version` of it.
    """

    node: str
    session: int
    version: int
    interest: DiscoveryInterest | None
    cursor: AnnouncementCursor


@dataclass(frozen=True, slots=True)
class SourceAnnouncement:
    """The current registration of a source. `attributes` is None if it was removed or is no longer requested."""

    source: str
    attributes: Attributes | None
    position: Position | None = None

    @property
    def size(self) -> int:
        """What it counts towards size limits: 1, plus 1 for each 1,000 characters of attributes."""
        texts = (text for item in (self.attributes or {}).items() for text in item if isinstance(text, str))
        return 1 + sum(map(len, texts)) // 1_000

    def to_registration(self, node: str) -> SourceRegistered:
        """The message that registers this source of another node with the local binder."""
        name, position = global_name(self.source, node), self.position
        local_position = None if position is None else replace(position, entity=name)
        return SourceRegistered(name, self.attributes or {}, local_position)


@dataclass(frozen=True, slots=True)
class DiscoveryResponse:
    """The announcements after number `after`, up to `cursor`. If `after` is 0, all current ones.

    `requester_session` and `version` tell which session and version of the interest this responds to. Version -1 means
    that the interest is not known and must be sent again. `more` means that announcements are left: poll again at once.
    """

    node: str
    requester_session: int
    version: int
    after: int
    cursor: AnnouncementCursor
    announcements: tuple[SourceAnnouncement, ...] = ()
    more: bool = False


class LocalSources(Protocol):
    """The registered sources of this node. Each has attributes (perhaps empty), never None."""

    def __iter__(self) -> Iterator[SourceAnnouncement]: ...

    def get(self, id: str) -> SourceAnnouncement | None: ...

    def inside(self, cells: Collection[Cell | None]) -> Iterable[str]:
        """The sources that can be in one of these cells; None is everywhere."""
