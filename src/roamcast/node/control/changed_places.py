"""Places that have other outlines than at the last start, are gone, or are back."""

from __future__ import annotations

import logging
from collections import Counter

from roamcast.bind.lcesm.messages import StateChanged, Unbound
from roamcast.bind.lcesm.states import SubscriptionState
from roamcast.journal.records import REMOVAL, SUBSCRIPTION, UNBINDING, Record
from roamcast.model import Subscription
from roamcast.node.control.binder_adapter import Outcome
from roamcast.node.control.queries import Queries
from roamcast.store.registry.port import RegistryStore
from roamcast.store.registry.values import BodySet, StandingEnded

__all__ = ["changed_places"]

log = logging.getLogger(__name__)


def changed_places(registry: RegistryStore, queries: Queries, at: int) -> Outcome:
    """What comes of it, before anything is followed.

    A subscription that names a place which is not known here is stopped until it is known again, and a warning is
    logged. The pipeline hears of those that run in places with new outlines.
    """
    outcome = Outcome()
    reasons: dict[str, str] = {}
    for subscription in registry.naming_places():
        reason = queries.why_not(subscription)
        if reason is None:
            outcome.add(_renewed(subscription, queries, at))
        else:
            reasons[subscription.id] = reason
            outcome.add(_stopped(subscription, reason, at))
    for bound in registry.live_bindings(reasons):
        outcome.changes.append(Unbound(bound.subscription, bound.source, at))
        outcome.records.append(Record(UNBINDING, bound.source, id=bound.subscription, time=at))
    for reason, count in sorted(Counter(reasons.values()).items()):
        source = queries.places_from or "no file of places"
        log.warning("%s (%s): it stops %d subscriptions until it is", reason, source, count)
    return outcome


def _stopped(subscription: Subscription, reason: str, at: int) -> Outcome:
    id, outcome = subscription.id, Outcome()
    if subscription.is_told:
        outcome.records.append(Record(REMOVAL, subscription.subscriber, id=id, time=at))
    stands = subscription.standing
    if stands is None or stands.state != SubscriptionState.STOP.value:
        outcome.changes.append(StateChanged(id, SubscriptionState.STOP, reason, at))
    elif stands.why != reason:
        outcome.changes.append(StateChanged(id, SubscriptionState.STOP, reason, stands.since))
    return outcome


def _renewed(subscription: Subscription, queries: Queries, at: int) -> Outcome:
    outcome = Outcome()
    asked = queries.stored(subscription)
    body = queries.body_of(asked.query)
    if body is not None and body != subscription.body:
        outcome.changes.append(BodySet(subscription.id, body))
    is_back = subscription.standing is not None and not asked.stands
    if is_back:
        outcome.changes.append(StandingEnded(subscription.id))
    if is_back or (outcome.changes and subscription.is_told):
        record = Record(SUBSCRIPTION, subscription.subscriber, id=subscription.id, time=at, body=body)
        outcome.records.append(record)
    return outcome
