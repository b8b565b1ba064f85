"""Discovery between nodes: standing requests, and what registries announce to those who made them. Sans-IO.

Every node asks every other, over and over: it says which sources it looks for, which it wants to send, and how far it
has heard; it is answered as soon as there is news, and now and then anyway. Questions and answers may be lost, late or
come twice: each says where it stands. Sessions rise with every start of a node, numbers within a session.

Here is what they say; an `Announcer` answers, a `Seeker` asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple, Protocol, TypeAlias

from roamcast.bind.lcesm.messages import Attributes, SourceRegistered
from roamcast.lacl import Query, normalised, parse, plan_of
from roamcast.lacl.conditions import may_hold
from roamcast.lacl.printing import condition_text
from roamcast.lacl.syntax import Condition
from roamcast.model import Position, global_name

__all__ = ["Answer", "Ask", "Heard", "Interest", "News", "Plan", "Request", "Sources", "request_of"]

Plan: TypeAlias = Literal["bind", "match"]


class Request(NamedTuple):
    """A standing request for sources that satisfy a condition on their attributes; an empty one is satisfied by all.

    For the bind plan they are announced wherever they are: which is the best is for the node to say whose subscriber it
    is. For the match plan they are only wanted.
    """

    plan: Plan
    condition: str

    def admits(self, attributes: Attributes) -> bool:
        """Whether events of a source could be wanted."""
        condition = _condition(self.condition)
        return condition is None or may_hold(condition, attributes)


def request_of(query: Query) -> Request:
    """What a subscription asks of other nodes. Equal requests are one."""
    condition = query.source_expression
    return Request(plan_of(query), "" if condition is None else condition_text(normalised(condition)))


@lru_cache(maxsize=100_000)
def _condition(text: str) -> Condition | None:
    return parse(f"Select all() Where {text}").where if text else None


class Interest(NamedTuple):
    """What a node looks for, and the sources of the one it asks that it wants to send."""

    requests: frozenset[Request] = frozenset()
    wanted: frozenset[str] = frozenset()

    @property
    def matching(self) -> frozenset[Request]:
        return frozenset(request for request in self.requests if request.plan == "match")

    @property
    def without_sources(self) -> Interest:
        """So that none is announced."""
        return self._replace(requests=self.matching)


class Heard(NamedTuple):
    """How far the announcements of a registry go, or were heard."""

    session: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Ask:
    """`interest` is left out when the registry has this `version` of it."""

    node: str
    session: int
    version: int
    interest: Interest | None
    heard: Heard


@dataclass(frozen=True, slots=True)
class News:
    """A source as it is now; without attributes it is gone, or no longer asked for."""

    source: str
    attributes: Attributes | None
    position: Position | None = None

    @property
    def room(self) -> int:
        """How many it counts for: one, and one more for each 1,000 characters of attributes."""
        texts = (text for item in (self.attributes or {}).items() for text in item if isinstance(text, str))
        return 1 + sum(map(len, texts)) // 1_000

    def registered(self, node: str) -> SourceRegistered:
        """How another node's binder is told of it."""
        name, at = global_name(self.source, node), self.position
        return SourceRegistered(name, self.attributes or {}, None if at is None else replace(at, entity=name))


@dataclass(frozen=True, slots=True)
class Answer:
    """What changed `after` a number; if that is 0, what there is. `version` is that of the interest it is about.

    `asker` is the session of the one who asked. A version of -1 says that it is not known: its interest is needed.
    `more`: there is more than an answer holds, to be asked for at once.
    """

    node: str
    asker: int
    version: int
    after: int
    heard: Heard
    news: tuple[News, ...] = ()
    more: bool = False


class Sources(Protocol):
    """The sources of a node. Each has attributes."""

    def __iter__(self) -> Iterator[News]: ...

    def get(self, id: str) -> News | None: ...
