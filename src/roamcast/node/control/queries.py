"""Subscriptions as they are asked for: LACL, or a region and terms, which become the same."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final, Self

from roamcast.bind.discovery.messages import request_of
from roamcast.errors import CorruptionError, InputError
from roamcast.journal.bodies import SubscriptionBody
from roamcast.lacl import MAX_BYTES, LaclError, Query, check, parse, plan_of, to_text
from roamcast.lacl.errors import SpanError
from roamcast.lacl.syntax import And, BoxRegion, Condition, Has, Inside, RangLoc, Select, Text, Variable, Within, leaves
from roamcast.model import Box as ModelBox
from roamcast.model import Subscription
from roamcast.node.settings import Limits
from roamcast.places import Places
from roamcast.space import Space

__all__ = ["Asked", "Queries", "places_of"]

_REMEMBERED: Final = 10_000
_LONGEST_REMEMBERED: Final = 1_000  # characters

_TERMS = Variable("&", "terms")
_LOCATION = Variable("&", "location")


@dataclass(frozen=True, slots=True)
class Asked:
    """A query that makes sense here, and its canonical form. `expression` is its agent's; None for the match plan.

    `source` is what it asks of the attributes of sources.
    """

    query: Query
    text: str
    expression: str | None
    source: str

    @classmethod
    def of(cls, query: Query, text: str) -> Self:
        return cls(query, text, query.expression_key if plan_of(query) == "bind" else None, request_of(query).condition)

    @property
    def is_around(self) -> bool:
        """Whether it takes every event around its subscriber, who may move."""
        return self.expression is None and isinstance(self.query.location, RangLoc)

    @property
    def stands(self) -> bool:
        """Whether it has states: it is bound to sources, or has a life-control. Any other simply runs."""
        return self.expression is not None or self.query.life_control is not None


class Queries:
    """Reads queries with this node's places, space and limits. Equal texts share one query. Safe between threads."""

    def __init__(self, places: Places, space: Space, limits: Limits, *, places_from: str | None = None) -> None:
        """`places_from` names the file that the places are from."""
        self.places = places
        self.places_from = places_from
        self.space = space
        self._limits = limits
        self._lock = Lock()
        self._known: OrderedDict[str, Asked] = OrderedDict()

    def read(self, text: str) -> Asked:
        """Raises LaclError."""
        if (known := self._recall(text)) is not None:
            return known
        query = check(parse(text), places=self.places, space=self.space)
        try:
            self._check(query)
        except SpanError as fault:
            raise LaclError.at(text, fault) from None
        asked = self._asked(query)
        self._remember(text, asked)
        return asked

    def stored(self, subscription: Subscription) -> Asked:
        """Of one that was accepted, whatever the limits and the places are now. Raises CorruptionError."""
        if (known := self._recall(subscription.text)) is not None:
            return known
        try:
            query = check(parse(subscription.text))
        except LaclError as error:
            hint = "use the roamcast that wrote it"
            where = f"subscription {subscription.id}"
            raise CorruptionError(f"cannot be read any more: {error}", where=where, hint=hint) from error
        asked = Asked.of(query, subscription.text)
        if self.why_not(subscription) is None:
            self._remember(subscription.text, asked)
        return asked

    def why_not(self, subscription: Subscription) -> str | None:
        """Why one that was accepted cannot be served now; None if it can."""
        unknown = [repr(place) for place in subscription.places if place not in self.places.names]
        return f"no place named {' or '.join(unknown)} is known here" if unknown else None

    def of_region(self, box: ModelBox | None, terms: Sequence[str]) -> Asked:
        """Every event in the box that carries all the terms; one of the two is given, and both have been checked."""
        parts: list[Condition] = []
        if box is not None:
            parts.append(Inside(_LOCATION, BoxRegion(box)))
        if terms:
            parts.append(Has(_TERMS, tuple(map(Text, terms))))
        return self._asked(Query(Select("all"), And(tuple(parts)) if len(parts) > 1 else parts[0]))

    def body_of(self, query: Query) -> str | None:
        """What the pipeline is told of it; None for the bind plan."""
        if plan_of(query) == "bind":
            return None
        return SubscriptionBody.of(query, self.places, self.space).to_json()

    def _check(self, query: Query) -> None:
        terms = [term for test in leaves(query.where) if isinstance(test, Has) for term in test.terms]
        most = self._limits.subscription_terms
        if len(terms) > most:
            message = f"{len(terms)} terms are more than the {most} allowed"
            raise SpanError(message, terms[most].span, hint="use fewer terms, or several subscriptions")
        for term in terms:
            if isinstance(term, Text) and len(term.value) > self._limits.term_length:
                message = f"a term has {len(term.value)} characters, not 1 to {self._limits.term_length}"
                raise SpanError(message, term.span, hint="shorten it")

    def _asked(self, query: Query) -> Asked:
        text = to_text(query)
        if (known := self._recall(text)) is not None:
            return known
        if len(text.encode()) > MAX_BYTES:
            raise InputError(
                f"written out in full it is longer than {MAX_BYTES:,} bytes",
                where="subscription",
                hint="split it into several subscriptions",
            )
        asked = Asked.of(query, text)
        self._remember(text, asked)
        return asked

    def _recall(self, text: str) -> Asked | None:
        with self._lock:
            if (known := self._known.get(text)) is not None:
                self._known.move_to_end(text)
            return known

    def _remember(self, text: str, asked: Asked) -> None:
        if len(text) > _LONGEST_REMEMBERED or len(asked.text) > _LONGEST_REMEMBERED:
            return
        with self._lock:
            self._known[text] = asked
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)


def places_of(query: Query) -> tuple[str, ...]:
    """The places that a query names, each once."""
    return tuple(dict.fromkeys(_places([query.where, query.life_control])))


def _places(conditions: Iterable[Condition | None]) -> Iterator[str]:
    for condition in conditions:
        for test in () if condition is None else leaves(condition):
            if isinstance(test, Inside) and isinstance(test.region, Within):
                yield test.region.place
