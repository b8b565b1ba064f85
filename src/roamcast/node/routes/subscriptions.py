"""Subscriptions are added and removed."""

from __future__ import annotations

import uuid
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from roamcast.errors import InputError
from roamcast.model import Box, Subscription
from roamcast.node.bodies import SubscriptionIn
from roamcast.node.dependencies import Subscriber, TheNode
from roamcast.node.features import LAYERS, subscription_feature
from roamcast.node.forms import Form

router = APIRouter(prefix="/subscriptions", tags=["subscriptions"])

_SUBSCRIPTION = Form(SubscriptionIn)


@router.post(
    "",
    status_code=201,
    openapi_extra=_SUBSCRIPTION.openapi,
    responses={200: {"description": "It was there already, the same in all parts."}},
)
async def add_subscription(request: Request, response: Response, node: TheNode, caller: Subscriber) -> dict[str, Any]:
    """Subscribe to the events inside a region that carry all terms; one of the two may be left out.

    It applies to every event that is posted after the answer. Adding the same subscription under the same id again
    is harmless (200); 409 if the id is taken by another.
    """
    given = await _SUBSCRIPTION.read(request, node)
    box = given.region.box() if given.region else None
    if box is not None:
        try:
            node.space.check_box(box)
        except InputError as error:
            raise InputError(error.message, where=f"region.{error.where}", hint=error.hint) from None
    subscription = Subscription(given.id or uuid.uuid4().hex, caller.id, box, given.terms)
    if not await run_in_threadpool(node.subscriptions.add, subscription):
        response.status_code = 200
    node.show(LAYERS[2], subscription.id, subscription_feature(subscription))
    return {"id": subscription.id}


@router.delete("/{id}", status_code=204)
async def remove_subscription(id: str, node: TheNode, caller: Subscriber) -> None:
    """Remove a subscription.

    Events acknowledged before the removal was asked for still become letters, even if those are under way when
    this answers. Events posted after the answer do not. Letters in the mailbox stay until they are acknowledged.
    """
    await run_in_threadpool(node.subscriptions.remove, id, caller.id)
    node.show(LAYERS[2], id, None)


@router.get("")
async def own_subscriptions(node: TheNode, caller: Subscriber) -> dict[str, Any]:
    """The caller's subscriptions, ordered by id."""
    found = await run_in_threadpool(node.registry.subscriptions, caller.id)
    return {"subscriptions": [_described(subscription) for subscription in found]}


def _described(subscription: Subscription) -> dict[str, Any]:
    box: Box | None = subscription.box
    return {
        "id": subscription.id,
        "subscriber": subscription.subscriber,
        "region": box and box._asdict(),
        "terms": list(subscription.terms),
    }
