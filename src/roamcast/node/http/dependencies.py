"""FastAPI dependencies: the node and the caller."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Final

from fastapi import Depends, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from roamcast.errors import AuthenticationError, ElsewhereError, PermissionDeniedError
from roamcast.node.auth import MailboxReader
from roamcast.node.callers import Caller
from roamcast.node.peers.remote_sources import RemoteSource
from roamcast.node.service import Node
from roamcast.security.tokens import PublishProof, hash_token

__all__ = [
    "AnyCaller", "CallerOrOperator", "DemandReader", "Gateway", "GatewayOrOperator", "HasToken", "LetterReader",
    "Operator", "Publisher", "Reader", "RegisteringGateway", "Source", "SourceOrGateway", "Subscriber",
    "SubscriberOrOperator", "TheNode", "TokenHash", "check_rate",
]  # fmt: skip

_ELSEWHERE: Final = "at other nodes, a source sends a publish proof; a gateway publishes only at its home"

_bearer = HTTPBearer(auto_error=False, description="The token returned by the registration.")


async def _node(request: Request) -> Node:  # async: FastAPI runs plain functions on another thread
    node: Node = request.app.state.node
    return node


TheNode = Annotated[Node, Depends(_node)]
_Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
_Ticket = Annotated[str | None, Query(max_length=100, description="A ticket, in place of the token: for browsers.")]


def check_rate(request: Request, node: Node) -> None:
    """Raises CapacityError if this address sends too many requests that cost another node's time."""
    node.rate_limiter.check(request.client.host if request.client else "")


async def _caller(request: Request, node: TheNode, credentials: _Credentials) -> Caller:
    visiting: Caller | None = getattr(request.state, "visiting", None)  # set by HomeRoute
    return visiting or node.auth.caller(credentials.credentials if credentials else None)


AnyCaller = Annotated[Caller, Depends(_caller)]


async def _caller_or_operator(request: Request, node: TheNode, credentials: _Credentials) -> Caller | None:
    token = credentials.credentials if credentials else None
    return None if node.auth.is_operator(token) else await _caller(request, node, credentials)


CallerOrOperator = Annotated[Caller | None, Depends(_caller_or_operator)]


async def _subscriber_or_operator(caller: CallerOrOperator) -> Caller | None:
    return caller if caller is None else await _subscriber(caller)


async def _source(caller: AnyCaller) -> Caller:
    if caller.kind != "source":
        raise PermissionDeniedError(
            f"{caller.id} is not a source", where="Authorization", hint="use the token of a source"
        )
    return caller


async def _gateway(caller: AnyCaller) -> Caller:
    if caller.kind != "gateway":
        raise PermissionDeniedError(
            f"{caller.id} is not a gateway", where="Authorization", hint="use the token of a gateway"
        )
    return caller


async def _gateway_or_operator(caller: CallerOrOperator) -> Caller | None:
    return caller if caller is None else await _gateway(caller)


async def _registering_gateway(request: Request, node: TheNode) -> Caller | None:
    credentials = await _bearer(request)  # not as a dependency: /docs would say that a token is required
    if credentials is None:
        return None
    caller = await _caller(request, node, credentials)
    if caller.kind != "gateway":
        raise PermissionDeniedError(
            f"{caller.id} is not a gateway",
            where="Authorization",
            hint="send the token of the gateway that the source belongs to; or none, and the source gets its own",
        )
    return caller


async def _source_or_gateway(caller: AnyCaller) -> Caller:
    return caller if caller.kind == "gateway" else await _source(caller)


async def _publisher(request: Request, node: TheNode, credentials: _Credentials) -> Caller | RemoteSource:
    proof = PublishProof.parse(credentials.credentials) if credentials else None
    if proof is None or proof.home == node.settings.domain:
        try:
            return await _source_or_gateway(await _caller(request, node, credentials))
        except AuthenticationError as error:
            if credentials is not None:
                error.hint = f"{error.hint}; {_ELSEWHERE}"
            raise
    if (source := node.remote_sources.known(proof)) is not None:
        return source
    check_rate(request, node)
    return await node.remote_sources.identify(proof)


async def _subscriber(caller: AnyCaller) -> Caller:
    if caller.kind != "subscriber":
        raise PermissionDeniedError(
            f"{caller.id} is not a subscriber", where="Authorization", hint="use the token of a subscriber"
        )
    return caller


async def _reader(node: TheNode, credentials: _Credentials) -> MailboxReader:
    return node.auth.reader(credentials.credentials if credentials else None)


async def _has_token(request: Request, node: TheNode) -> bool:
    credentials = await _bearer(request)  # not as a dependency: /docs would say that a token is required
    if credentials is None:
        return False
    with suppress(PermissionDeniedError, ElsewhereError):  # the token of a source, or of a visitor that has left
        node.auth.reader(credentials.credentials)
    return True


async def _letter_reader(node: TheNode, credentials: _Credentials, ticket: _Ticket = None) -> MailboxReader:
    if ticket is None:
        return await _reader(node, credentials)
    return node.auth.reader_of(node.tickets.token_hash("mailbox", ticket))


async def _demand_reader(request: Request, node: TheNode, credentials: _Credentials, ticket: _Ticket = None) -> Caller:
    if ticket is None:
        return await _source_or_gateway(await _caller(request, node, credentials))
    return await _source_or_gateway(node.auth.caller_of(node.tickets.token_hash("demand", ticket)))


async def _token_hash(credentials: _Credentials) -> str:
    return hash_token(credentials.credentials if credentials else "")


async def _operator(node: TheNode, credentials: _Credentials) -> None:
    node.auth.check_operator(credentials.credentials if credentials else None)


Source = Annotated[Caller, Depends(_source)]
Gateway = Annotated[Caller, Depends(_gateway)]
GatewayOrOperator = Annotated[Caller | None, Depends(_gateway_or_operator)]
RegisteringGateway = Annotated[Caller | None, Depends(_registering_gateway)]
"""None is anybody without a token."""
SourceOrGateway = Annotated[Caller, Depends(_source_or_gateway)]
Publisher = Annotated[Caller | RemoteSource, Depends(_publisher)]
Subscriber = Annotated[Caller, Depends(_subscriber)]
Reader = Annotated[MailboxReader, Depends(_reader)]
HasToken = Annotated[bool, Depends(_has_token)]
"""Whether the caller sent a token that this node has issued. Without one, it is anonymous."""
LetterReader = Annotated[MailboxReader, Depends(_letter_reader)]
"""A reader with a token or a ticket; so is DemandReader."""
DemandReader = Annotated[Caller, Depends(_demand_reader)]
TokenHash = Annotated[str, Depends(_token_hash)]
Operator = Depends(_operator)
SubscriberOrOperator = Annotated[Caller | None, Depends(_subscriber_or_operator)]
"""None is the operator; so it is in CallerOrOperator and GatewayOrOperator."""
