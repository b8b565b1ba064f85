"""Places that have other outlines than at the last start, or are gone."""

from __future__ import annotations

from roamcast.errors import ConflictError
from roamcast.journal.records import SUBSCRIPTION, Record
from roamcast.node.following import Outcome
from roamcast.node.queries import Queries
from roamcast.store.port import RegistryStore
from roamcast.store.values import BodySet

__all__ = ["new_outlines"]


def new_outlines(registry: RegistryStore, queries: Queries, at: int) -> Outcome:
    """What the pipeline must hear of subscriptions in places whose outlines have changed.

    Raises ConflictError for a subscription whose place is not known any more.
    """
    outcome = Outcome()
    known = set(queries.places.names)
    for subscription in registry.naming_places():
        for place in subscription.places:
            if place not in known:
                raise ConflictError(
                    f"subscription {subscription.id} names the place {place!r}, which is not there",
                    where=queries.places_from or "places",
                    hint="give the file that has it, with --places (ROAMCAST_PLACES), or put it back",
                )
        if subscription.body is None:
            continue
        body = queries.body_of(queries.stored(subscription).query)
        if body is not None and body != subscription.body:
            outcome.changes.append(BodySet(subscription.id, body))
            if subscription.is_told:
                record = Record(SUBSCRIPTION, subscription.subscriber, id=subscription.id, time=at, body=body)
                outcome.records.append(record)
    return outcome
