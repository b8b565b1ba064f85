"""Arrivals: subscribers that want to be served by this office."""

from __future__ import annotations

from fastapi import APIRouter, Request

from roamcast.node.http.api_route import ApiRoute
from roamcast.node.http.dependencies import TheNode, check_rate
from roamcast.node.http.openapi import errors
from roamcast.node.http.request_parsing import BodyParser
from roamcast.node.http.schemas.mailboxes import ArrivalOut
from roamcast.node.schemas import ArrivalIn

router = APIRouter(tags=["letters"], route_class=ApiRoute)

_ARRIVAL = BodyParser(ArrivalIn, anonymous=True)


@router.post("/arrivals", openapi_extra=_ARRIVAL.openapi, responses=errors(403, 404, 409, 429))
async def arrive(request: Request, node: TheNode) -> ArrivalOut:
    """Move the mailbox of a subscriber, of any domain, to this office. Returns the token that opens it here.

    The subscriber's move proof for this epoch authorises the move. `secret` is random and known to the caller only;
    with it the request can be repeated. 409 `elsewhere`, with the current `epoch`, if the epoch is not higher than
    that. 503 while the mailbox is on its way: repeat the request.
    """
    check_rate(request, node)
    arrival = await _ARRIVAL.read(request, node)
    token = await node.office.arrivals.arrive(
        arrival.name, arrival.epoch, arrival.previous, arrival.move_proof, arrival.secret
    )
    return ArrivalOut(name=arrival.name, epoch=arrival.epoch, office=node.settings.domain, token=token)
