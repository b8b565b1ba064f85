"""Wants: what a data folder wants of the sources of a node in another one, and the control records of it.

A want is a text, so that sets of wants can be compared, stored and sent as they are: the `SubscriptionBody` of a
region, or an object with the id of a source.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import orjson

from roamcast.errors import InputError
from roamcast.journal.bodies import LINK, BindingBody, SubscriptionBody
from roamcast.journal.records import BINDING, REMOVAL, SUBSCRIPTION, UNBINDING, Record

__all__ = ["begin_want", "check_want", "end_want", "want_of_source"]


def want_of_source(id: str) -> str:
    """All events of a source."""
    return orjson.dumps({"source": id}).decode()


def check_want(want: str) -> None:
    """Raises InputError for a text that is not a want."""
    if _source_of(want) is None:
        body = SubscriptionBody.from_json(want)
        if body.moving_radius is not None or body.every is not None:
            raise InputError(
                "a want has neither a moving region nor a period", hint="run the same version on both nodes"
            )


def begin_want(link: str, want: str, at: int) -> Record:
    """The record with which the events of this node that are wanted begin to be forwarded to a link."""
    subscriber = LINK + link
    source = _source_of(want)
    if source is None:
        return Record(SUBSCRIPTION, subscriber, id=_id(link, want), time=at, body=want)
    body = BindingBody(subscriber, initial=True).to_json()
    return Record(BINDING, source, id=_id(link, want), time=at, body=body)


def end_want(link: str, want: str, at: int) -> Record:
    """The record that ends it."""
    source = _source_of(want)
    kind, entity = (REMOVAL, LINK + link) if source is None else (UNBINDING, source)
    return Record(kind, entity, id=_id(link, want), time=at)


def _id(link: str, want: str) -> str:
    return f"{LINK}{link}/{sha256(want.encode()).hexdigest()[:32]}"


def _source_of(want: str) -> str | None:
    """The id of the source that is wanted; None for a region."""
    try:
        value: Any = orjson.loads(want)
    except orjson.JSONDecodeError as error:
        raise InputError(f"not a want: {error}") from error
    if not isinstance(value, dict) or value.keys() != {"source"}:
        return None
    source = value["source"]
    if not isinstance(source, str) or not source or "@" in source:
        raise InputError(f"not the id of a source: {source!r}")
    return source
