"""Subscriptions: add, remove, list, show and explain."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from roamcast.bind.lcesm.messages import Bound, SubscriptionState
from roamcast.bind.lcesm.views import SubscriptionStatus
from roamcast.errors import InputError, NotFoundError, PermissionDeniedError
from roamcast.model import Lifecycle, Subscription, iso
from roamcast.node.auth import Caller
from roamcast.node.control.explain import Check, ExplainedEvent, PipelineProgress, explain, verdict
from roamcast.node.control.queries import CheckedQuery
from roamcast.node.http.dependencies import Subscriber, SubscriberOrOperator, TheNode
from roamcast.node.http.home_route import HomeRoute
from roamcast.node.http.request_parsing import BodyParser
from roamcast.node.schemas import EventIn, SubscriptionIn
from roamcast.node.service import Node
from roamcast.node.waiting import await_to_the_end

router = APIRouter(prefix="/subscriptions", tags=["subscriptions"], route_class=HomeRoute)

_SUBSCRIPTION = BodyParser(SubscriptionIn)
_EVENT = BodyParser(EventIn)
_HISTORY = 1_000  # bindings searched to explain an event

Limit = Annotated[int, Query(ge=1, description="Maximum number; the node has a limit too.")]


@router.post(
    "",
    status_code=201,
    openapi_extra=_SUBSCRIPTION.openapi,
    responses={200: {"description": "The same subscription exists already."}},
)
async def add_subscription(request: Request, response: Response, node: TheNode, caller: Subscriber) -> dict[str, Any]:
    """Subscribe with a LACL query (`lacl`), or to the events inside a region with all given terms.

    The subscription applies to every event published after the response. Adding the same subscription under the same id
    again returns 200; 409 if another one has the id.
    """
    subscription = await _SUBSCRIPTION.read(request, node)
    query, body = await run_in_threadpool(_query_and_body, node, subscription)
    id = subscription.id or uuid.uuid4().hex
    if not await await_to_the_end(node.control.subscribe(id, caller.id, query, body)):
        response.status_code = 200
    node.show_subscription(id, caller.id, query)
    return {"id": id}


@router.delete("/{id}", status_code=204)
async def remove_subscription(id: str, node: TheNode, caller: Subscriber) -> None:
    """Remove a subscription.

    Events acknowledged before the request still become letters, even after the response. Events published after the
    response do not. Letters in the mailbox stay until they are acknowledged.
    """
    await await_to_the_end(node.control.unsubscribe(id, caller.id))
    node.remove_features("subscriptions", [id])


@router.get("")
async def list_subscriptions(
    node: TheNode,
    caller: SubscriberOrOperator,
    limit: Limit = 1000,
    after: Annotated[str, Query(description="Only ids after this one.")] = "",
) -> dict[str, Any]:
    """The caller's subscriptions by id; with the operator token, all. `more` tells whether there are more.

    Each has its canonical `text`, `plan`, `state`, the `sources` it is bound to, `since` when, and `why` it receives
    nothing, as of its last change of state. Request a single subscription to see its current status.
    """
    limit = min(limit, node.limits.page)
    owner = None if caller is None else caller.id

    def read() -> tuple[list[dict[str, Any]], bool]:
        page = node.registry.subscriptions(owner, after=after, limit=limit + 1)
        shown = page[:limit]
        bindings = node.registry.live_bindings([one.id for one in shown if one.has_lifecycle])
        return _list_json(node, shown, bindings), len(page) > limit

    listed, more = await run_in_threadpool(read)
    return {"subscriptions": listed, "more": more}


@router.get("/{id}")
async def show_subscription(id: str, node: TheNode, caller: SubscriberOrOperator) -> dict[str, Any]:
    """The current status of a subscription. For its owner and the operator."""
    subscription = await run_in_threadpool(_own, node, id, caller)
    return _with_path(node, _status_json(await _status_of(node, subscription)))


@router.post("/{id}/explain", openapi_extra=_EVENT.openapi)
async def explain_match(id: str, request: Request, node: TheNode, caller: SubscriberOrOperator) -> dict[str, Any]:
    """Explain why an event would match a subscription or not. Nothing is published. For its owner and the operator.

    Each of the `checks` has `holds` (null: this node cannot tell) and `why`. All checks use the current state: the
    subscriber may have been elsewhere at the time of the event. `matches` is false if any check fails, true if all
    hold, else null. Regions are checked for the event's own `x` and `y`. Only for the operator, an event without them
    is where its source is.
    """
    event = await _EVENT.read(request, node)
    subscription = await run_in_threadpool(_own, node, id, caller)
    status = await _status_of(node, subscription)
    checks = await run_in_threadpool(_explain, node, subscription, status, event, is_operator=caller is None)
    if status.state.value == "active":
        path = node.path_states.of(id, status.sources if status.plan == "bind" else None)
        checks += [] if path is None else [Check("path", None, f"{path.state}: {path.why}")]
    return {
        "subscription": id,
        "matches": verdict(checks),
        "checks": [{"check": check.name, "holds": check.holds, "why": check.why} for check in checks],
    }


async def _status_of(node: Node, subscription: Subscription) -> SubscriptionStatus:
    """The current status. Raises NotFoundError if it has been removed meanwhile."""
    id = subscription.id
    if not subscription.has_lifecycle:
        why = _position_unknown(node, subscription)
        return SubscriptionStatus(
            id,
            subscription.subscriber,
            subscription.text,
            "match",
            SubscriptionState.ACTIVE,
            (),
            subscription.accepted,
            why,
        )
    future = node.control.query(lambda adapter: adapter.status(id) if id in adapter else None)
    status = await await_to_the_end(future)
    if status is None:
        raise NotFoundError(
            "the subscription has just been removed", where=id, hint="GET /v1/subscriptions lists your own"
        )
    return replace(status, why=status.why or _position_unknown(node, subscription))


def _explain(
    node: Node, subscription: Subscription, status: SubscriptionStatus, event: EventIn, *, is_operator: bool
) -> list[Check]:
    """Subscribers must not learn where others are, not even by yes or no: they choose the region that is checked."""
    source = None if event.source is None else node.entities.find(event.source)
    if source is not None and source.kind != "source":
        source = None  # a subscriber publishes nothing, and its attributes are its own
    x, y = event.x, event.y
    if is_operator and x is None and source is not None and source.position is not None:
        x, y = source.position.x, source.position.y
    if x is not None and y is not None:
        node.space.check_point(x, y)
    time = node.clock.now() if event.time is None else event.time
    sender = node.outbox_reader.pipeline_status
    is_informed = sender is not None and node.registry.pipeline() == sender.pipeline
    return explain(
        node.queries.stored(subscription).query,
        status,
        ExplainedEvent(event.source, source, x, y, time, frozenset(event.terms), event.readings),
        subscriber=node.entities.find(subscription.subscriber),
        bindings=node.registry.bindings(subscription.id, _HISTORY),
        progress=PipelineProgress(sender, is_informed, node.settings.domain, node.journal.last_offset),
        places=node.queries.places,
        space=node.space,
    )


@router.get("/{id}/bindings")
async def list_bindings(
    id: str,
    node: TheNode,
    caller: SubscriberOrOperator,
    limit: Limit = 100,
    skip: Annotated[int, Query(ge=0, le=2**62, description="Skip this many of the newest.")] = 0,
) -> dict[str, Any]:
    """The bindings of a subscription, newest first. `more` tells whether there are more.

    Bindings that ended more than 24 hours ago (setting `history`) are deleted.
    """
    limit = min(limit, node.limits.page)

    def read() -> list[dict[str, Any]]:
        _own(node, id, caller)
        return [
            {
                "source": binding.source,
                "bound_at": iso(binding.bound_at),
                "unbound_at": None if binding.unbound_at is None else iso(binding.unbound_at),
            }
            for binding in node.registry.bindings(id, limit + 1, skip)
        ]

    page = await run_in_threadpool(read)
    return {"bindings": page[:limit], "more": len(page) > limit}


def _query_and_body(node: Node, subscription: SubscriptionIn) -> tuple[CheckedQuery, str | None]:
    """The query, and the body of its control record."""
    if subscription.lacl is not None:
        query = node.queries.read(subscription.lacl)
    else:
        box = subscription.region.box() if subscription.region else None
        if box is not None and subscription.region is not None:
            try:
                node.space.check_box(box, crosses_antimeridian=subscription.region.crosses_antimeridian)
            except InputError as error:
                raise InputError(error.message, where=f"region.{error.where}", hint=error.hint) from None
        query = node.queries.of_region(box, subscription.terms)
    return query, node.queries.body_of(query.query)


def _own(node: Node, id: str, caller: Caller | None) -> Subscription:
    subscription = node.registry.subscription(id)
    if caller is not None and subscription.subscriber != caller.id:
        raise PermissionDeniedError(
            "this subscription belongs to another subscriber", where="id", hint="GET /v1/subscriptions lists your own"
        )
    return subscription


def _list_json(node: Node, subscriptions: Sequence[Subscription], bindings: Iterable[Bound]) -> list[dict[str, Any]]:
    """As stored, without waiting for the control writer."""
    bound: dict[str, list[Bound]] = {one.id: [] for one in subscriptions}
    for binding in bindings:
        bound[binding.subscription].append(binding)
    listed = []
    for one in subscriptions:
        why = _position_unknown(node, one)
        listed.append(_subscription_json(one, why))
        if one.lifecycle is not None:
            listed[-1] |= _lifecycle_json(one.lifecycle, bound[one.id], why)
    return [_with_path(node, one) for one in listed]


def _with_path(node: Node, shown: dict[str, Any]) -> dict[str, Any]:
    """The state as the path to other nodes makes it: an active subscription may be starting, partial or unreachable."""
    if shown["state"] != "active":
        return shown
    path = node.path_states.of(shown["id"], shown["sources"] if shown["plan"] == "bind" else None)
    if path is None:
        return shown
    since = shown["since"] if path.since is None else max(iso(path.since), shown["since"])
    return {**shown, "state": path.state, "since": since, "why": path.why, "peers": list(path.peers)}


def _lifecycle_json(lifecycle: Lifecycle, bound: Sequence[Bound], why: str | None) -> dict[str, Any]:
    return {
        "state": lifecycle.state,
        "sources": [one.source for one in bound],
        "since": iso(max([lifecycle.since, *(one.at for one in bound)])),
        "why": lifecycle.why or why,
    }


def _position_unknown(node: Node, subscription: Subscription) -> str | None:
    """Why a moving region receives nothing, if it is because the position of its subscriber is unknown."""
    subscriber = node.entities.find(subscription.subscriber)
    if not subscription.has_moving_region or subscriber is None or subscriber.position is not None:
        return None
    return f"the position of {subscription.subscriber} is not known"


def _subscription_json(subscription: Subscription, why: str | None) -> dict[str, Any]:
    return {
        "id": subscription.id,
        "subscriber": subscription.subscriber,
        "text": subscription.text,
        "plan": subscription.plan,
        "state": "active",
        "sources": [],
        "since": iso(subscription.accepted),
        "why": why,
    }


def _status_json(status: SubscriptionStatus) -> dict[str, Any]:
    return {
        "id": status.id,
        "subscriber": status.subscriber,
        "text": status.text,
        "plan": status.plan,
        "state": status.state.value,
        "sources": list(status.sources),
        "since": iso(status.since),
        "why": status.why,
    }
