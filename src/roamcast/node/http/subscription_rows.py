"""Subscriptions in bulk: the rows of a request become queries, each on its own.

A row is what a request for a single subscription has as its body. `read_row` is the reference. Rows with nothing but an
id and a box and terms, which may be a LACL text, take a short way, which gives the same and leaves everything unusual
to the reference.
"""

from __future__ import annotations

import re
import uuid
from math import isfinite
from typing import Any, Final

import orjson

from roamcast.errors import InputError, RoamcastError
from roamcast.model import Box
from roamcast.node.control.queries import AcceptedQuery, Queries
from roamcast.node.http.arrow_bodies import TABLE_TYPES, describe_columns
from roamcast.node.http.bulk_rows import NDJSON, Row, Rows, accept_each, read_json
from roamcast.node.http.request_parsing import BodyParser
from roamcast.node.http.subscription_tables import SUBSCRIPTION_COLUMNS
from roamcast.node.schemas import SubscriptionIn
from roamcast.settings_model import NodeLimits
from roamcast.validation import ID

__all__ = ["SUBSCRIPTION", "SUBSCRIPTIONS_OPENAPI", "AcceptedRow", "accept_rows", "new_id", "read_row", "read_simple"]

SUBSCRIPTION: Final = BodyParser(SubscriptionIn)
SUBSCRIPTIONS_OPENAPI: Final = BodyParser(SubscriptionIn, bulk="subscriptions").openapi_with(
    NDJSON,
    dict.fromkeys(sorted(TABLE_TYPES), describe_columns(SUBSCRIPTION_COLUMNS)),
    '{"id":"fires","box":[8,53,9,54],"terms":["fire"]}\n{"id":"floods","terms":["flood"]}\n',
)
"""One subscription, a list, lines, or a table."""

_ID: Final = re.compile(ID)
_SIMPLE: Final = frozenset({"id", "box", "terms"})
_TEXT: Final = frozenset({"id", "lacl"})
_NUMBERS: Final = frozenset({int, float})
_KEYED: Final = uuid.UUID("5b2c9a51-6a44-4f53-9d8e-5c8d4b6e7a10")

AcceptedRow = tuple[str, AcceptedQuery] | RoamcastError
"""The id and the query of a subscription, or why it is refused."""


def accept_rows(
    rows: Rows, first: int, queries: Queries, limits: NodeLimits, subscriber: str, key: str | None
) -> list[AcceptedRow]:
    """Read each of these rows, which begin with number `first`. For the `key` see `new_id`."""

    def accept(row: Row, number: int) -> tuple[str, AcceptedQuery]:
        value = read_json(row) if isinstance(row, bytes) else row
        id, query = read_simple(value, queries, limits) or read_row(value, queries, limits)
        if query.since is not None:
            raise InputError("not in bulk", where="since", hint="send this subscription in a request of its own")
        return id or new_id(subscriber, key, number), query

    return accept_each(rows, first, "subscriptions", accept)


def new_id(subscriber: str, key: str | None, number: int = 0) -> str:
    """A random id or, with an idempotency `key`, the same one for a row in each request with this key."""
    return uuid.uuid4().hex if key is None else uuid.uuid5(_KEYED, f"{subscriber}\n{key}\n{number}").hex


def read_row(row: Row, queries: Queries, limits: NodeLimits) -> tuple[str | None, AcceptedQuery]:
    """Raises InputError."""
    body = row if isinstance(row, bytes) else orjson.dumps(row)
    subscription = SUBSCRIPTION.parse(body, limits)
    if subscription.lacl is not None:
        query = queries.accept(subscription.lacl)
    else:
        query = queries.accept_box(subscription.box_in(queries.space), subscription.terms)
    if subscription.since is None:
        return subscription.id, query
    if query.body is None:
        raise InputError("only for all()", where="since", hint="omit it: this subscription follows sources")
    if subscription.since > limits.since:
        hint = f"at most {limits.since:g} seconds" if limits.since else "omit it: this node allows none"
        raise InputError(f"{subscription.since:g} seconds are too long", where="since", hint=f"{hint} (limits.since)")
    return subscription.id, query._replace(since=round(subscription.since * 1_000_000))


def read_simple(row: Row, queries: Queries, limits: NodeLimits) -> tuple[str | None, AcceptedQuery] | None:
    """As `read_row`, much faster; None for a row that is not simple or not valid."""
    if type(row) is not dict:
        return None
    id, box, terms = row.get("id"), None, row.get("terms", ())
    if "id" in row and (type(id) is not str or not _ID.fullmatch(id)):
        return None
    if row.keys() <= _TEXT:
        text = row.get("lacl")
        query = queries.accept_plain(text) if type(text) is str else None
        return None if query is None else (id, query)
    if not row.keys() <= _SIMPLE:
        return None
    if "box" in row:
        box = _read_box(row["box"])
        if box is None:
            return None
        try:
            queries.space.check_box(box, crosses_antimeridian=False)
        except InputError:
            return None
    if "terms" in row:
        if type(terms) is not list or len(terms) > limits.subscription_terms:
            return None
        for term in terms:
            if type(term) is not str or not 0 < len(term) <= limits.term_length or "\0" in term:
                return None
        if len(terms) > 1:
            terms = tuple(dict.fromkeys(terms))
    if box is None and not terms:
        return None
    return id, queries.accept_box(box, terms)


def _read_box(borders: Any) -> Box | None:
    if type(borders) is not list or len(borders) != len(Box._fields):
        return None
    if not _NUMBERS.issuperset(map(type, borders)) or not all(map(isfinite, borders)):
        return None
    return Box(*map(float, borders))
