"""Subscriptions: add, remove, list, show and explain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from roamcast.bind.lcesm.messages import Bound, SubscriptionState
from roamcast.bind.lcesm.views import SubscriptionStatus
from roamcast.errors import InputError, NotFoundError, PermissionDeniedError
from roamcast.model import Lifecycle, Subscription, iso
from roamcast.node.callers import Caller
from roamcast.node.control.explain import Check, ExplainedEvent, PipelineProgress, explain, verdict
from roamcast.node.control.queries import AcceptedQuery
from roamcast.node.control.request_group import NamedQueries, Outcome
from roamcast.node.http.arrow_bodies import TABLE_TYPES
from roamcast.node.http.bulk_rows import CHUNK, Rows, add_rows, is_bulk, read_json, read_rows
from roamcast.node.http.dependencies import Subscriber, SubscriberOrOperator, TheNode
from roamcast.node.http.errors import error_json
from roamcast.node.http.home_route import HomeRoute
from roamcast.node.http.openapi import errors
from roamcast.node.http.request_parsing import BodyParser, media_type, read_bytes
from roamcast.node.http.schemas.subscriptions import (
    AddedOut,
    BindingsOut,
    ExplanationOut,
    RemovedOut,
    ReplacedOut,
    SubscriptionIdOut,
    SubscriptionOut,
    SubscriptionsOut,
)
from roamcast.node.http.subscription_rows import (
    SUBSCRIPTION,
    SUBSCRIPTIONS_OPENAPI,
    AcceptedRow,
    accept_rows,
    new_id,
    read_row,
    read_simple,
)
from roamcast.node.http.subscription_tables import read_subscription_table
from roamcast.node.schemas import EventIn, SubscriptionIdsIn
from roamcast.node.service import Node
from roamcast.node.waiting import await_to_the_end

router = APIRouter(prefix="/subscriptions", tags=["subscriptions"], route_class=HomeRoute)

_EVENT = BodyParser(EventIn)
_IDS = BodyParser(SubscriptionIdsIn)
_HISTORY = 1_000  # bindings searched to explain an event
_SHOWN = 1_000  # subscriptions of a request that the page shows

Limit = Annotated[int, Query(ge=1, description="Maximum number; the node has a limit too.")]


@router.post(
    "",
    status_code=201,
    response_class=Response,
    openapi_extra=SUBSCRIPTIONS_OPENAPI,
    responses={
        200: {"description": "The same subscription exists already, or a list was sent.", "model": AddedOut},
        201: {"description": "The subscription was added.", "model": SubscriptionIdOut},
    },
)
async def add_subscriptions(
    request: Request,
    node: TheNode,
    caller: Subscriber,
    all_or_none: Annotated[bool, Query(description="Add a list completely or not at all.")] = False,
    idempotency_key: Annotated[
        str | None, Query(min_length=1, max_length=256, description="Makes the ids of rows without one.")
    ] = None,
) -> Response:
    """Subscribe with a LACL query (`lacl`), or to the events inside a box with all given terms.

    The subscription applies to every event published after the response. With `since` (seconds), it also gets what it
    would have received in that time before, as far as the archive goes; 409 if there is none. The node limits how long
    that may be, and refuses it in bulk.

    Adding the same subscription under the same id again returns 200 and changes nothing: no letters of the past are
    sent again, even if `since` is another one. 409 if another subscription has the id.

    A JSON list, NDJSON (`application/x-ndjson`: one subscription in each line), or a table in Arrow or Parquet adds
    many. The response has the number `added`, of those that exist already (`existing`) and of `refused` ones, and in
    `subscriptions`, in the same order, each `id` and whether it is `new`, or an `error`. Each is added or refused on
    its own. With `all_or_none` nothing is added if one is refused; then the limit is one append to the journal.

    Send ids, or an `idempotency_key`, to be able to repeat a request. With a key, rows without an id get the same ids
    in each request with the same key and rows in the same order.
    """
    body = await read_bytes(request, node)
    type_ = media_type(request)
    if type_ in TABLE_TYPES or is_bulk(body, type_):
        return await _add_many(node, caller.id, body, type_, all_or_none=all_or_none, key=idempotency_key)
    id, query = await _read_one(node, body)
    id = id or new_id(caller.id, idempotency_key)
    is_new = await await_to_the_end(node.control.subscribe(id, caller.id, query))
    node.show_subscription(id, caller.id, query.body)
    return _json({"id": id}, 201 if is_new else 200)


@router.put("/{id}", openapi_extra=SUBSCRIPTION.openapi, response_model=ReplacedOut, responses=errors(404))
async def replace_subscription(id: str, request: Request, node: TheNode, caller: Subscriber) -> dict[str, Any]:
    """Give a subscription another query, without a gap: each event is matched with the old query or with the new one.

    Events published after the response are matched with the new one. 404 if there is no such subscription.
    """
    sent_id, query = await _read_one(node, await read_bytes(request, node))
    if query.since is not None:
        raise InputError("only for a new subscription", where="since", hint="omit it, or add another subscription")
    if sent_id not in (None, id):
        raise InputError("not the id of the path", where="id", hint="omit it")
    is_other = await await_to_the_end(node.control.replace(id, caller.id, query))
    node.show_subscription(id, caller.id, query.body)
    return {"id": id, "replaced": is_other}


@router.post("/remove", response_class=Response, openapi_extra=_IDS.openapi, responses={200: {"model": RemovedOut}})
async def remove_subscriptions(request: Request, node: TheNode, caller: Subscriber) -> Response:
    """Remove many subscriptions. For each the same holds as for a single one.

    The response has the number `removed` and of `refused` ones, and in `subscriptions`, in the same order, each `id`,
    with an `error` if it was refused.
    """
    ids = (await _IDS.read(request, node)).ids
    outcomes: list[dict[str, Any]] = []
    for first in range(0, len(ids), CHUNK):
        chunk = ids[first : first + CHUNK]
        refusals = await await_to_the_end(node.control.unsubscribe_many(caller.id, chunk))
        for id, error in zip(chunk, refusals, strict=True):
            outcomes.append({"id": id} if error is None else {"id": id, "error": error_json(error)})
        node.remove_features("subscriptions", chunk)
    refused = sum("error" in outcome for outcome in outcomes)
    return _json({"removed": len(outcomes) - refused, "refused": refused, "subscriptions": outcomes})


async def _read_one(node: Node, body: bytes) -> tuple[str | None, AcceptedQuery]:
    row = read_json(body)
    simple = read_simple(row, node.queries, node.limits)
    if simple is not None:
        return simple
    return await run_in_threadpool(read_row, row, node.queries, node.limits)


async def _add_many(
    node: Node, subscriber: str, body: bytes, type_: str, *, all_or_none: bool, key: str | None
) -> Response:
    most = node.limits.bulk if all_or_none else node.limits.subscriptions

    def read() -> Rows:
        if type_ in TABLE_TYPES:
            return read_subscription_table(body, type_, most, node.limits.decoded)
        return read_rows(body, type_, "subscriptions", most)

    def accept(chunk: Rows, first: int) -> list[AcceptedRow]:
        return accept_rows(chunk, first, node.queries, node.limits, subscriber, key)

    async def add(queries: NamedQueries, first: int) -> list[Outcome]:
        outcomes = await await_to_the_end(node.control.subscribe_many(subscriber, queries, all_or_none=all_or_none))
        for id, query in queries[: max(0, _SHOWN - first)]:
            node.show_subscription(id, subscriber, query.body)
        return outcomes

    rows = await run_in_threadpool(read)
    return _json(await add_rows(rows, "subscriptions", accept, add, all_or_none=all_or_none))


@router.delete("/{id}", status_code=204, responses=errors(404))
async def remove_subscription(id: str, node: TheNode, caller: Subscriber) -> None:
    """Remove a subscription.

    Events acknowledged before the request still become letters, even after the response. Events published after the
    response do not. Letters in the mailbox stay until they are acknowledged.
    """
    await await_to_the_end(node.control.unsubscribe(id, caller.id))
    node.remove_features("subscriptions", [id])


@router.get("", response_model=SubscriptionsOut, responses=errors(503))
async def list_subscriptions(
    node: TheNode,
    caller: SubscriberOrOperator,
    limit: Limit = 1000,
    after: Annotated[str, Query(description="Only ids after this one.")] = "",
) -> dict[str, Any]:
    """List the caller's subscriptions by id; with the operator token, all. `more` tells whether there are more.

    `why` is as of the last change of state. Request a single subscription to see its current status.
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


@router.get("/{id}", response_model=SubscriptionOut, responses=errors(404, 503))
async def show_subscription(id: str, node: TheNode, caller: SubscriberOrOperator) -> dict[str, Any]:
    """Show the current status of a subscription. For its owner and the operator."""
    subscription = await run_in_threadpool(_own, node, id, caller)
    return _with_path(node, _status_json(await _status_of(node, subscription)))


@router.post("/{id}/explain", openapi_extra=_EVENT.openapi, response_model=ExplanationOut, responses=errors(404))
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


@router.get("/{id}/bindings", response_model=BindingsOut, responses=errors(404, 503))
async def list_bindings(
    id: str,
    node: TheNode,
    caller: SubscriberOrOperator,
    limit: Limit = 100,
    skip: Annotated[int, Query(ge=0, le=2**62, description="Skip this many of the newest.")] = 0,
) -> dict[str, Any]:
    """List the bindings of a subscription, newest first. `more` tells whether there are more.

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


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")


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
        "lacl": subscription.text,
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
        "lacl": status.text,
        "plan": status.plan,
        "state": status.state.value,
        "sources": list(status.sources),
        "since": iso(status.since),
        "why": status.why,
    }
