"""Queries of subscriptions: LACL texts, or a region and terms, which become a query too."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final, NamedTuple, Self

from roamcast.bind.discovery.cells import Cell
from roamcast.bind.discovery.messages import request_of
from roamcast.errors import CorruptionError, InputError
from roamcast.journal.bodies import SubscriptionBody, box_body
from roamcast.lacl import MAX_BYTES, LaclError, Plan, Query, check, parse, plan_of, to_text
from roamcast.lacl.errors import SpanError
from roamcast.lacl.plain import read_plain
from roamcast.lacl.printing import quoted, region_text
from roamcast.lacl.syntax import BoxRegion, Condition, Has, Inside, RangLoc, Text, Within, leaves
from roamcast.model import Box, Subscription
from roamcast.places import Places
from roamcast.settings_model import NodeLimits
from roamcast.space import Space

__all__ = ["AcceptedQuery", "CheckedQuery", "Queries", "box_text", "cell_of", "places_of"]

_CACHED: Final = 10_000
_LONGEST_CACHED: Final = 1_000  # characters


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """A query that is valid at this node, and its canonical text.

    `expression` is that of its agent, None for plan match; `source_condition` is on the attributes of sources,
    as JSON; "" if there is none.
    """

    query: Query
    text: str
    expression: str | None
    source_condition: str

    @classmethod
    def of(cls, query: Query, text: str) -> Self:
        return cls(query, text, query.expression_key if plan_of(query) == "bind" else None, request_of(query).condition)

    @property
    def plan(self) -> Plan:
        return plan_of(self.query)

    @property
    def has_moving_region(self) -> bool:
        """Whether it matches all events around its subscriber, who may move."""
        return self.plan == "match" and isinstance(self.query.location, RangLoc)

    @property
    def has_lifecycle(self) -> bool:
        """Whether it has states: it is bound to sources or has life-control. Any other is always active."""
        return self.plan == "bind" or self.query.life_control is not None


class AcceptedQuery(NamedTuple):
    """A valid query as it is stored: its canonical text, and what follows from it.

    `body` is that of its control record; None for plan bind. `cell` contains its region, `places` are those it names.
    `with_lifecycle` is the query itself if it has a lifecycle: the binder needs it. `since`: the period before the
    subscription, in microseconds, of which it gets letters from the archive.
    """

    text: str
    body: str | None
    cell: str = ""
    places: tuple[str, ...] = ()
    source_condition: str = ""
    has_moving_region: bool = False
    with_lifecycle: CheckedQuery | None = None
    since: int | None = None


class Queries:
    """Parses queries with this node's places, space and limits. Equal texts share one query. Thread-safe."""

    def __init__(self, places: Places, space: Space, limits: NodeLimits, *, places_from: str | None = None) -> None:
        """`places_from` is the file of the places."""
        self.places = places
        self.places_from = places_from
        self.space = space
        self._limits = limits
        self._lock = Lock()
        self._cache: OrderedDict[str, CheckedQuery] = OrderedDict()

    def read(self, text: str) -> CheckedQuery:
        """Raises LaclError."""
        if (cached := self._cached(text)) is not None:
            return cached
        query = check(parse(text), places=self.places, space=self.space)
        try:
            self._check_limits(query)
        except SpanError as error:
            raise LaclError.at(text, error) from None
        checked = self._canonical(query)
        self._put_in_cache(text, checked)
        return checked

    def stored(self, subscription: Subscription) -> CheckedQuery:
        """The query of an accepted subscription, regardless of current limits and places. Raises CorruptionError."""
        if (cached := self._cached(subscription.text)) is not None:
            return cached
        try:
            query = check(parse(subscription.text))
        except LaclError as error:
            hint = "use the version of roamcast that wrote it"
            where = f"subscription {subscription.id}"
            raise CorruptionError(f"cannot parse a stored query: {error}", where=where, hint=hint) from error
        checked = CheckedQuery.of(query, subscription.text)
        if self.why_not(subscription) is None:
            self._put_in_cache(subscription.text, checked)
        return checked

    def why_not(self, subscription: Subscription) -> str | None:
        """Why an accepted subscription cannot be served now; None if it can."""
        unknown = [repr(place) for place in subscription.places if place not in self.places.names]
        return f"no place named {' or '.join(unknown)} is known here" if unknown else None

    def accept(self, text: str) -> AcceptedQuery:
        """Raises LaclError."""
        checked = self.read(text)
        body = self.body_of(checked.query)
        return AcceptedQuery(
            checked.text,
            body,
            cell_of(body),
            places_of(checked.query),
            checked.source_condition,
            checked.has_moving_region,
            checked if checked.has_lifecycle else None,
        )

    def accept_plain(self, text: str) -> AcceptedQuery | None:
        """As `accept`, much faster; None for a text that is not plain (see `read_plain`) or not valid."""
        query = read_plain(text)
        if query is None or len(query.terms) > self._limits.subscription_terms:
            return None
        if query.box is not None:
            try:
                self.space.check_box(query.box, crosses_antimeridian=False)
            except InputError:
                return None
        if any(len(term) > self._limits.term_length for term in query.terms):
            return None
        return self.accept_box(query.box, query.terms)

    def accept_box(self, box: Box | None, terms: Sequence[str]) -> AcceptedQuery:
        """All events in the box with all the terms. At least one of the two is given; both have been checked.

        Gives what `accept` gives for the same text, but parses nothing. Raises InputError if the text is too long.
        """
        text = box_text(box, terms)
        if len(text) > MAX_BYTES // 4:
            _check_length(text)
        cell = None if box is None else Cell.around(box)
        return AcceptedQuery(text, box_body(box, terms, self.space.name), "" if cell is None else str(cell))

    def body_of(self, query: Query) -> str | None:
        """The body of its control record; None for plan bind."""
        if plan_of(query) == "bind":
            return None
        return SubscriptionBody.of(query, self.places, self.space).to_json()

    def _check_limits(self, query: Query) -> None:
        """Raises SpanError."""
        terms = [term for test in leaves(query.where) if isinstance(test, Has) for term in test.terms]
        most = self._limits.subscription_terms
        if len(terms) > most:
            message = f"{len(terms)} terms; at most {most} are allowed"
            raise SpanError(message, terms[most].span, hint="use fewer terms, or several subscriptions")
        for term in terms:
            if isinstance(term, Text) and len(term.value) > self._limits.term_length:
                message = f"a term has {len(term.value)} characters; 1 to {self._limits.term_length} are allowed"
                raise SpanError(message, term.span, hint="use a shorter term")

    def _canonical(self, query: Query) -> CheckedQuery:
        """The query with its canonical text. Raises InputError if that is too long."""
        text = to_text(query)
        if (cached := self._cached(text)) is not None:
            return cached
        _check_length(text)
        checked = CheckedQuery.of(query, text)
        self._put_in_cache(text, checked)
        return checked

    def _cached(self, text: str) -> CheckedQuery | None:
        with self._lock:
            if (cached := self._cache.get(text)) is not None:
                self._cache.move_to_end(text)
            return cached

    def _put_in_cache(self, text: str, checked: CheckedQuery) -> None:
        if len(text) > _LONGEST_CACHED or len(checked.text) > _LONGEST_CACHED:
            return
        with self._lock:
            self._cache[text] = checked
            if len(self._cache) > _CACHED:
                self._cache.popitem(last=False)


def box_text(box: Box | None, terms: Sequence[str]) -> str:
    """The canonical text of a query for a box, terms, or both."""
    parts = []
    if box is not None:
        parts.append(f"&location in {region_text(BoxRegion(box))}")
    if terms:
        parts.append(f"&terms has ({', '.join(map(quoted, terms))})")
    return f"Select all() Where {' and '.join(parts)}"


def _check_length(text: str) -> None:
    """Raises InputError."""
    if len(text.encode()) > MAX_BYTES:
        raise InputError(
            f"the canonical text is longer than {MAX_BYTES:,} bytes",
            where="subscription",
            hint="split it into several subscriptions",
        )


def cell_of(body: str | None) -> str:
    """The cell that contains the region of a body; "" if it has none or may be anywhere."""
    box = None if body is None else SubscriptionBody.from_json(body).box
    cell = None if box is None else Cell.around(box)
    return "" if cell is None else str(cell)


def places_of(query: Query) -> tuple[str, ...]:
    """The places that a query names, without duplicates."""
    return tuple(dict.fromkeys(_places([query.where, query.life_control])))


def _places(conditions: Iterable[Condition | None]) -> Iterator[str]:
    for condition in conditions:
        for test in () if condition is None else leaves(condition):
            if isinstance(test, Inside) and isinstance(test.region, Within):
                yield test.region.place
