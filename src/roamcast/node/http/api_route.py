"""The route of every operation: it refuses unknown query parameters."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from roamcast.errors import InputError
from roamcast.node.validation_errors import known_names

__all__ = ["ApiRoute", "Handler"]

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class ApiRoute(APIRoute):
    """A route that answers a misspelt parameter with an error. FastAPI would ignore it."""

    def get_route_handler(self) -> Handler:
        serve = super().get_route_handler()
        known = frozenset(_query_names(self.dependant))

        async def check_and_serve(request: Request) -> Response:
            if request.scope["query_string"]:
                for name in request.query_params:
                    if name not in known:
                        message, hint = f"unknown parameter {name!r}", known_names(name, known)
                        raise InputError(message, where=name, hint=hint)
            return await serve(request)

        return check_and_serve


def _query_names(dependant: Dependant) -> set[str]:
    """The query parameters of an operation and of its dependencies."""
    own = {field.alias for field in dependant.query_params}
    return own.union(*(_query_names(dependency) for dependency in dependant.dependencies))
