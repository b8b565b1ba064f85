"""Client processes that send and read letters over HTTP."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import orjson

from roamcast.errors import UnavailableError

__all__ = ["LETTER", "TimedLetters", "in_processes", "read_out", "register", "send_in"]

LETTER = 200  # bytes
_MESSAGE = "x" * (LETTER - len('{"title":"","message":""}'))
_BUNDLE = 1_000  # letters in a request
_SENDING = 6  # requests of a client at a time
_READING = 2
_MAILBOXES = 100  # in a request

T = TypeVar("T")


class TimedLetters(NamedTuple):
    """Start, end (by a clock shared by all processes) and number of letters."""

    began: float
    ended: float
    letters: int

    @staticmethod
    def rate(parts: Sequence[TimedLetters]) -> float:
        """Letters per second, over all parts."""
        took = max(part.ended for part in parts) - min(part.began for part in parts)
        return sum(part.letters for part in parts) / took


class _KeepAliveConnection:
    """A persistent connection to a node."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=120.0)

    def request(self, method: str, path: str, token: str | None = None, body: Any = None) -> Any:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._connection.request(method, path, None if body is None else orjson.dumps(body), headers)
        response = self._connection.getresponse()
        content = response.read()
        if response.status >= http.client.BAD_REQUEST:
            raise UnavailableError(f"{method} {path}: {response.status} {content[:200].decode(errors='replace')}")
        return orjson.loads(content)

    def close(self) -> None:
        self._connection.close()


def register(url: str, ids: Sequence[str]) -> list[str]:
    """Register subscribers and return their tokens."""
    return _over_connections(
        url, 16, ids, lambda connection, id: connection.request("POST", "/v1/subscribers", body={"id": id})["token"]
    )


def send_in(url: str, token: str, receivers: Sequence[str], count: int) -> TimedLetters:
    """Send `count` numbered letters, to each receiver in turn."""

    def send(connection: _KeepAliveConnection, first: int) -> None:
        numbers = range(first, min(first + _BUNDLE, count))
        letters = [
            {"to": receivers[i % len(receivers)], "number": i // len(receivers) + 1, "message": _MESSAGE}
            for i in numbers
        ]
        outcomes = connection.request("POST", "/v1/letters", token, letters)["letters"]
        if sum(outcome.get("new", False) for outcome in outcomes) != len(letters):
            raise UnavailableError(
                f"letters were refused: {[outcome for outcome in outcomes if 'error' in outcome][:1]}"
            )

    in_turn = len(receivers) < _SENDING * _BUNDLE  # letters to one receiver must stay in order
    began = time.monotonic()
    _over_connections(url, 1 if in_turn else _SENDING, range(0, count, _BUNDLE), send)
    return TimedLetters(began, time.monotonic(), count)


def read_out(url: str, tokens: Sequence[str]) -> TimedLetters:
    """Read and acknowledge all letters of these mailboxes. Raises UnavailableError if the order is wrong."""

    def read(connection: _KeepAliveConnection, group: Sequence[str]) -> int:
        offsets, had = dict.fromkeys(group, 0), 0
        while offsets:
            requests = [{"token": token, "through": offset, "limit": 1_000} for token, offset in offsets.items()]
            replies = connection.request("POST", "/v1/mailboxes/pull", body=requests)["mailboxes"]
            for (token, offset), pulled in zip(list(offsets.items()), replies, strict=True):
                letters = pulled["letters"]
                if [letter["offset"] for letter in letters] != list(range(offset + 1, offset + len(letters) + 1)):
                    raise UnavailableError("letters are missing or out of order")
                had += len(letters)
                if letters:
                    offsets[token] += len(letters)
                else:
                    del offsets[token]
        return had

    groups = [tokens[first : first + _MAILBOXES] for first in range(0, len(tokens), _MAILBOXES)]
    began = time.monotonic()
    letters = sum(_over_connections(url, _READING, groups, read))
    return TimedLetters(began, time.monotonic(), letters)


def in_processes(work: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> list[T]:
    """Run each call in its own process, all at the same time."""
    context = get_context("spawn")
    with context.Pool(len(arguments)) as pool:
        pool.map(_nothing, range(8 * len(arguments)))  # by then all processes have started
        return pool.starmap(work, arguments, chunksize=1)


def _nothing(_: int) -> None:
    time.sleep(0.1)


def _over_connections(
    url: str, count: int, items: Sequence[Any], act: Callable[[_KeepAliveConnection, Any], T]
) -> list[T]:
    """Call `act` for each item, over `count` connections. Results are in order."""
    connections: SimpleQueue[_KeepAliveConnection] = SimpleQueue()
    for _ in range(count):
        connections.put(_KeepAliveConnection(url))

    def with_connection(item: Any) -> T:
        connection = connections.get()
        try:
            return act(connection, item)
        finally:
            connections.put(connection)

    with ThreadPoolExecutor(count) as pool:
        done = list(pool.map(with_connection, items))
    while not connections.empty():
        connections.get().close()
    return done
