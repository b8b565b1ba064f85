"""Subscriptions are added, removed, and seen."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from roamcast.bind.views import Status
from roamcast.errors import InputError, NotFoundError, PermissionDeniedError
from roamcast.model import Subscription
from roamcast.node.bodies import SubscriptionIn
from roamcast.node.dependencies import Subscriber, SubscriberOrOperator, TheNode
from roamcast.node.forms import Form
from roamcast.node.queries import Asked
from roamcast.node.security import Caller
from roamcast.node.service import Node, acknowledged
from roamcast.node.times import iso

router = APIRouter(prefix="/subscriptions", tags=["subscriptions"])

_SUBSCRIPTION = Form(SubscriptionIn)
_AT_ONCE = 50  # questions to the bindery, which has other things to do

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
    if not await acknowledged(node.bindery.subscribe(id, caller.id, asked, body)):
        response.status_code = 200
    node.show_subscription(id, caller.id, asked)
    return {"id": id}


@router.delete("/{id}", status_code=204)
async def remove_subscription(id: str, node: TheNode, caller: Subscriber) -> None:
    """Remove a subscription.

    Events acknowledged before the removal was asked for still become letters, even if those are under way when
    this answers. Events posted after the answer do not. Letters in the mailbox stay until they are acknowledged.
    """
    await acknowledged(node.bindery.unsubscribe(id, caller.id))
    node.show_gone("subscriptions", [id])


@router.get("")
async def subscriptions(
    node: TheNode,
    caller: SubscriberOrOperator,
    limit: Limit = 1000,
    after: Annotated[str, Query(description="Only those with ids behind this one.")] = "",
) -> dict[str, Any]:
    """The caller's subscriptions, ordered by id; with the operator's token everybody's. `more`: there are more.

    Each has its canonical `text`, its `plan`, its `state` and the `sources` it is bound to, `since` when, and `why` it
    hears nothing.
    """
    limit = min(limit, node.limits.page)
    owner = None if caller is None else caller.id
    found = await run_in_threadpool(lambda: node.registry.subscriptions(owner, after=after, limit=limit + 1))
    shown = found[:limit]
    described = [
        one for at in range(0, len(shown), _AT_ONCE) for one in await _described(node, shown[at : at + _AT_ONCE])
    ]
    return {"subscriptions": described, "more": len(found) > limit}


@router.get("/{id}")
async def one_subscription(id: str, node: TheNode, caller: SubscriberOrOperator) -> dict[str, Any]:
    """A subscription as it is now. One sees one's own; the operator sees all."""
    found = await run_in_threadpool(_own, node, id, caller)
    for described in await _described(node, [found]):
        return described
    raise NotFoundError("it has just been removed", where=id, hint="list yours to see their ids")


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


def _asked(node: Node, given: SubscriptionIn) -> tuple[Asked, str | None]:
    """What is asked for, and what the pipeline is told of it."""
    if given.lacl is not None:
        asked = node.queries.read(given.lacl)
    else:
        box = given.region.box() if given.region else None
        if box is not None:
            try:
                node.space.check_box(box)
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


async def _described(node: Node, found: list[Subscription]) -> list[dict[str, Any]]:
    """Without those that have been removed meanwhile."""

    standing = [one.id for one in found if one.standing is not None]
    statuses: dict[str, Status] = {}
    if standing:
        question = node.bindery.ask(lambda following: [following.status(id) for id in standing if id in following])
        statuses = {status.id: status for status in await acknowledged(question)}
    return [
        _running(one) if one.standing is None else _status(statuses[one.id])
        for one in found
        if one.standing is None or one.id in statuses
    ]


def _running(subscription: Subscription) -> dict[str, Any]:
    return {
        "id": subscription.id,
        "subscriber": subscription.subscriber,
        "text": subscription.text,
        "plan": "match",
        "state": "active",
        "sources": [],
        "since": iso(subscription.accepted),
        "why": None,
    }


def _status(status: Status) -> dict[str, Any]:
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
