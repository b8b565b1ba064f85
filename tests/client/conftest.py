"""A scripted server for the tests of the client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from nodes import RunningNode, running_node

from roamcast.client import Client


class Script:
    """A server that gives scripted responses and records the requests."""

    def __init__(self, *outcomes: httpx.Response | type[httpx.TransportError]) -> None:
        self.requests: list[httpx.Request] = []
        self._outcomes = iter(outcomes)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        outcome = next(self._outcomes)
        if isinstance(outcome, httpx.Response):
            return outcome
        raise outcome("broken", request=request)

    def client(self, token: str | None = "token") -> Client:
        return Client(token=token, delays=(0, 0), http=httpx.Client(transport=httpx.MockTransport(self)))

    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests if request.content]

    @staticmethod
    def reply(status: int = 200, **body: Any) -> httpx.Response:
        return httpx.Response(status, json=body)

    @staticmethod
    def error(status: int, code: str) -> httpx.Response:
        return Script.reply(status, error={"code": code, "message": "no", "where": "there", "hint": "do this"})


@pytest.fixture(scope="session")
def script() -> type[Script]:
    """The class of scripted servers."""
    return Script


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with running_node(tmp_path, scene=True) as node:
        yield node
