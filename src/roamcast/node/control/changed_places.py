"""At the start of a node: places whose polygons have changed, are missing, or are back."""

from __future__ import annotations

import logging
from collections import Counter

from roamcast.bind.lcesm.messages import StateChanged, SubscriptionState, Unbound
from roamcast.journal.records import REMOVAL, SUBSCRIPTION, UNBINDING, Record
from roamcast.model import Subscription
from roamcast.node.control.control_update import ControlUpdate
from roamcast.node.control.queries import Queries, cell_of
from roamcast.store.registry.port import RegistryStore
from roamcast.store.registry.values import BodySet, LifecycleEnded

__all__ = ["changed_places"]

log = logging.getLogger(__name__)


def changed_places(registry: RegistryStore, queries: Queries, at: int) -> ControlUpdate:
    """The updates for subscriptions that name places. Apply them before the binder is restored.

    A subscription that names an unknown place is stopped until the place is known again; a warning is logged. The
    pipeline gets the new polygons of running subscriptions.
    """
    update = ControlUpdate()
    reasons: dict[str, str] = {}
    for subscription in registry.subscriptions_naming_places():
        reason = queries.why_not(subscription)
        if reason is None:
            update.add(_refresh(subscription, queries, at))
        else:
            reasons[subscription.id] = reason
            update.add(_stop(subscription, reason, at))
    for bound in registry.live_bindings(reasons):
        update.changes.append(Unbound(bound.subscription, bound.source, at))
        update.records.append(Record(UNBINDING, bound.source, id=bound.subscription, time=at))
    for reason, count in sorted(Counter(reasons.values()).items()):
        log.warning("%s (%s): stopped %d subscriptions", reason, queries.places_from or "no file of places", count)
    return update


def _stop(subscription: Subscription, reason: str, at: int) -> ControlUpdate:
    id, update = subscription.id, ControlUpdate()
    if subscription.in_pipeline:
        update.records.append(Record(REMOVAL, subscription.subscriber, id=id, time=at))
    lifecycle = subscription.lifecycle
    if lifecycle is None or lifecycle.state != SubscriptionState.STOP.value:
        update.changes.append(StateChanged(id, SubscriptionState.STOP, reason, at))
    elif lifecycle.why != reason:
        update.changes.append(StateChanged(id, SubscriptionState.STOP, reason, lifecycle.since))
    return update


def _refresh(subscription: Subscription, queries: Queries, at: int) -> ControlUpdate:
    update = ControlUpdate()
    query = queries.stored(subscription)
    body = queries.body_of(query.query)
    if body is not None and body != subscription.body:
        update.changes.append(BodySet(subscription.id, body, cell_of(body)))
    is_back = subscription.has_lifecycle and not query.has_lifecycle
    if is_back:
        update.changes.append(LifecycleEnded(subscription.id))
    if is_back or (update.changes and subscription.in_pipeline):
        record = Record(SUBSCRIPTION, subscription.subscriber, id=subscription.id, time=at, body=body)
        update.records.append(record)
    return update
