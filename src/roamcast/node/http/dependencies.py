"""What routes ask for: the node, and who is calling."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from roamcast.errors import PermissionDeniedError
from roamcast.node import auth as security
from roamcast.node.auth import Caller
from roamcast.node.peers.remote_sources import RemoteSource
from roamcast.node.service import Node
from roamcast.security.publish_proofs import Passport

__all__ = [
    "AnyCaller", "CallerOrOperator", "Operator", "Publisher", "Reader", "Source", "Subscriber", "SubscriberOrOperator",
    "TheNode",
]  # fmt: skip

_bearer = HTTPBearer(auto_error=False, description="The token given at registration.")


async def _node(request: Request) -> Node:  # not a plain function: FastAPI would run that in another thread
    node: Node = request.app.state.node
    return node


TheNode = Annotated[Node, Depends(_node)]
_Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


async def _caller(node: TheNode, given: _Credentials) -> Caller:
    return node.auth.caller(given.credentials if given else None)


AnyCaller = Annotated[Caller, Depends(_caller)]


async def _caller_or_operator(node: TheNode, given: _Credentials) -> Caller | None:
    token = given.credentials if given else None
    return None if node.auth.is_operator(token) else node.auth.caller(token)


CallerOrOperator = Annotated[Caller | None, Depends(_caller_or_operator)]


async def _subscriber_or_operator(caller: CallerOrOperator) -> Caller | None:
    return caller if caller is None else await _subscriber(caller)


async def _source(caller: AnyCaller) -> Caller:
    if caller.kind != "source":
        raise PermissionDeniedError(
            f"{caller.id} is no source", where="Authorization", hint="register a source, and use its token"
        )
    return caller


async def _publisher(request: Request, node: TheNode, given: _Credentials) -> Caller | RemoteSource:
    passport = Passport.parse(given.credentials) if given else None
    if passport is None or passport.home == node.settings.domain:
        return await _source(await _caller(node, given))
    if (remote_source := node.remote_sources.known(passport)) is not None:
        return remote_source
    node.rate_limiter.check(request.client.host if request.client else "")
    return await node.remote_sources.ask(passport)


async def _subscriber(caller: AnyCaller) -> Caller:
    if caller.kind != "subscriber":
        raise PermissionDeniedError(
            f"{caller.id} is no subscriber", where="Authorization", hint="register a subscriber, and use its token"
        )
    return caller


async def _reader(node: TheNode, given: _Credentials) -> security.Reader:
    return node.auth.reader(given.credentials if given else None)


async def _operator(node: TheNode, given: _Credentials) -> None:
    node.auth.check_operator(given.credentials if given else None)


Source = Annotated[Caller, Depends(_source)]
Publisher = Annotated[Caller | RemoteSource, Depends(_publisher)]
Subscriber = Annotated[Caller, Depends(_subscriber)]
Reader = Annotated[security.Reader, Depends(_reader)]
Operator = Depends(_operator)
SubscriberOrOperator = Annotated[Caller | None, Depends(_subscriber_or_operator)]
"""None is the operator, here and in CallerOrOperator."""
