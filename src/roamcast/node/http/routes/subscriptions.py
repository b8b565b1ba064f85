"""Subscriptions are added, removed, and seen."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from roamcast.bind.lcesm.messages import Bound
from roamcast.bind.lcesm.states import SubscriptionState
from roamcast.bind.lcesm.views import SubscriptionStatus
from roamcast.errors import InputError, NotFoundError, PermissionDeniedError
from roamcast.model import Lifecycle, Subscription, iso
from roamcast.node.auth import Caller
from roamcast.node.control.explain import Check, ExplainedEvent, PipelineProgress, explain, verdict
from roamcast.node.control.queries import CheckedQuery
from roamcast.node.http.dependencies import Subscriber, SubscriberOrOperator, TheNode
from roamcast.node.http.request_parsing import BodyParser
from roamcast.node.schemas import EventIn, SubscriptionIn
from roamcast.node.service import Node
from roamcast.node.waiting import await_to_the_end

router = APIRouter(prefix="/subscriptions", tags=["subscriptions"])

_SUBSCRIPTION = BodyParser(SubscriptionIn)
_EVENT = BodyParser(EventIn)
_HISTORY = 1_000  # bindings that are looked through for an event

Limit = Annotated[int, Query(ge=1, description="At most so many; the node has a limit of its own.")]


@router.post(
    "",
    status_code=201,
    openapi_extra=_SUBSCRIPTION.openapi,
    responses={200: {"description": "It was there already, the same in all parts."}},
)
async def add_subscription(request: Request, response: Response, node: TheNode, caller: Subscriber) -> dict[str, Any]:
    """Subscribe, in LACL (`lacl`), or to the events inside a region that carry all terms, one of which may be left out.

    It applies to every event that is posted after the answer. Adding the same subscription under the same id again
    is harmless (200); 409 if the id is taken by another.
    """
    given = await _SUBSCRIPTION.read(request, node)
    asked, body = await run_in_threadpool(_asked, node, given)
    id = given.id or uuid.uuid4().hex
    if not await await_to_the_end(node.control.subscribe(id, caller.id, asked, body)):
        response.status_code = 200
    node.show_subscription(id, caller.id, asked)
    return {"id": id}


@router.delete("/{id}", status_code=204)
async def remove_subscription(id: str, node: TheNode, caller: Subscriber) -> None:
    """Remove a subscription.

    Events acknowledged before the removal was asked for still become letters, even if those are under way when
    this answers. Events posted after the answer do not. Letters in the mailbox stay until they are acknowledged.
    """
    await await_to_the_end(node.control.unsubscribe(id, caller.id))
    node.show_gone("subscriptions", [id])


@router.get("")
async def subscriptions(
    node: TheNode,
    caller: SubscriberOrOperator,
    limit: Limit = 1000,
    after: Annotated[str, Query(description="Only those with ids behind this one.")] = "",
) -> dict[str, Any]:
    """The caller's subscriptions, ordered by id; with the operator's token everybody's. `more`: there are more.

    Each has its canonical `text`, its `plan`, its `state` and the `sources` it is bound to, `since` when, and in brief
    `why` it hears nothing, as it was when it came into this state: ask for one alone to see how it is now.
    """
    limit = min(limit, node.limits.page)
    owner = None if caller is None else caller.id

    def read() -> tuple[list[dict[str, Any]], bool]:
        found = node.registry.subscriptions(owner, after=after, limit=limit + 1)
        shown = found[:limit]
        bindings = node.registry.live_bindings([one.id for one in shown if one.lifecycle is not None])
        return _listed(node, shown, bindings), len(found) > limit

    listed, more = await run_in_threadpool(read)
    return {"subscriptions": listed, "more": more}


@router.get("/{id}")
async def one_subscription(id: str, node: TheNode, caller: SubscriberOrOperator) -> dict[str, Any]:
    """A subscription as it is now. One sees one's own; the operator sees all."""
    found = await run_in_threadpool(_own, node, id, caller)
    return _shown(await _status_of(node, found))


@router.post("/{id}/explain", openapi_extra=_EVENT.openapi)
async def explain_match(id: str, request: Request, node: TheNode, caller: SubscriberOrOperator) -> dict[str, Any]:
    """Why an event does or would match a subscription, or not; nothing is published. One explains one's own.

    `checks` are what is asked for, each with whether it `holds` (null: that cannot be said here) and `why`. All is
    judged by what is so now: sources and subscribers may have been elsewhere, and other, when an event happened.
    `matches` is false if anything fails, true if all holds, and else null.
    """
    given = await _EVENT.read(request, node)
    found = await run_in_threadpool(_own, node, id, caller)
    status = await _status_of(node, found)
    checks = await run_in_threadpool(_explained, node, found, status, given)
    return {
        "subscription": id,
        "matches": verdict(checks),
        "checks": [{"check": check.name, "holds": check.holds, "why": check.why} for check in checks],
    }


async def _status_of(node: Node, found: Subscription) -> SubscriptionStatus:
    """As it is now. Raises NotFoundError if it has been removed meanwhile."""
    id = found.id
    if found.lifecycle is None:
        why = _nowhere(node, found)
        return SubscriptionStatus(
            id, found.subscriber, found.text, "match", SubscriptionState.ACTIVE, (), found.accepted, why
        )
    question = node.control.query(lambda binder: binder.status(id) if id in binder else None)
    status = await await_to_the_end(question)
    if status is None:
        raise NotFoundError("it has just been removed", where=id, hint="list yours to see their ids")
    return replace(status, why=status.why or _nowhere(node, found))


def _explained(node: Node, found: Subscription, status: SubscriptionStatus, given: EventIn) -> list[Check]:
    source = None if given.source is None else node.entities.find(given.source)
    x, y = given.x, given.y
    if x is None and source is not None and source.position is not None:
        x, y = source.position.x, source.position.y
    if x is not None and y is not None:
        node.space.check_point(x, y)
    time = node.clock.now() if given.time is None else given.time
    sender = node.outbox_reader.sender
    told = sender is not None and node.registry.pipeline() == sender.pipeline
    return explain(
        node.queries.stored(found).query,
        status,
        ExplainedEvent(given.source, source, x, y, time, frozenset(given.terms), given.readings),
        subscriber=node.entities.find(found.subscriber),
        bindings=node.registry.bindings(found.id, _HISTORY),
        progress=PipelineProgress(sender, told, node.settings.domain, node.journal.last_offset),
        places=node.queries.places,
        space=node.space,
    )


@router.get("/{id}/bindings")
async def bindings(
    id: str,
    node: TheNode,
    caller: SubscriberOrOperator,
    limit: Limit = 100,
    skip: Annotated[int, Query(ge=0, le=2**62, description="Leave out so many of the newest.")] = 0,
) -> dict[str, Any]:
    """The sources that a subscription has had, newest first, each from when to when. `more`: there are more.

    Those that ended more than 24 hours ago (or what the node is set to) are forgotten.
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

    found = await run_in_threadpool(read)
    return {"bindings": found[:limit], "more": len(found) > limit}


def _asked(node: Node, given: SubscriptionIn) -> tuple[CheckedQuery, str | None]:
    """What is asked for, and what the pipeline is told of it."""
    if given.lacl is not None:
        asked = node.queries.read(given.lacl)
    else:
        box = given.region.box() if given.region else None
        if box is not None and given.region is not None:
            try:
                node.space.check_box(box, crosses_antimeridian=given.region.crosses_antimeridian)
            except InputError as error:
                raise InputError(error.message, where=f"region.{error.where}", hint=error.hint) from None
        asked = node.queries.of_region(box, given.terms)
    return asked, node.queries.body_of(asked.query)


def _own(node: Node, id: str, caller: Caller | None) -> Subscription:
    found = node.registry.subscription(id)
    if caller is not None and found.subscriber != caller.id:
        raise PermissionDeniedError(
            "this subscription is somebody else's", where="id", hint="see your own: GET /v1/subscriptions"
        )
    return found


def _listed(node: Node, found: Sequence[Subscription], bindings: Iterable[Bound]) -> list[dict[str, Any]]:
    """As they are stored: the one who works on the next moves is not asked."""
    bound: dict[str, list[Bound]] = {one.id: [] for one in found}
    for binding in bindings:
        bound[binding.subscription].append(binding)
    listed = []
    for one in found:
        why = _nowhere(node, one)
        listed.append(_running(one, why))
        if one.lifecycle is not None:
            listed[-1] |= _lifecycle(one.lifecycle, bound[one.id], why)
            listed[-1]["plan"] = "bind" if one.body is None else "match"
    return listed


def _lifecycle(lifecycle: Lifecycle, bound: Sequence[Bound], why: str | None) -> dict[str, Any]:
    return {
        "state": lifecycle.state,
        "sources": [one.source for one in bound],
        "since": iso(max([lifecycle.since, *(one.at for one in bound)])),
        "why": lifecycle.why or why,
    }


def _nowhere(node: Node, subscription: Subscription) -> str | None:
    """Why a subscription around its subscriber hears nothing, if it is because nobody knows where that is."""
    subscriber = node.entities.find(subscription.subscriber)
    if not subscription.has_moving_region or subscriber is None or subscriber.position is not None:
        return None
    return f"the position of {subscription.subscriber} is not known"


def _running(subscription: Subscription, why: str | None) -> dict[str, Any]:
    return {
        "id": subscription.id,
        "subscriber": subscription.subscriber,
        "text": subscription.text,
        "plan": "match",
        "state": "active",
        "sources": [],
        "since": iso(subscription.accepted),
        "why": why,
    }


def _shown(status: SubscriptionStatus) -> dict[str, Any]:
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
