"""Clients, in processes of their own, that send letters and read them over a node's HTTP interface."""

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

__all__ = ["LETTER", "Timed", "in_processes", "read_out", "register", "send_in"]

LETTER = 200  # bytes
_MESSAGE = "x" * (LETTER - len('{"title":"","message":""}'))
_BUNDLE = 1_000  # letters in a request
_SENDING = 6  # requests of a client at a time
_READING = 2
_MAILBOXES = 100  # in a request

T = TypeVar("T")


class Timed(NamedTuple):
    """From when to when, by a clock that all processes share, and how many letters."""

    began: float
    ended: float
    letters: int

    @staticmethod
    def rate(parts: Sequence[Timed]) -> float:
        """Letters a second, of all together."""
        took = max(part.ended for part in parts) - min(part.began for part in parts)
        return sum(part.letters for part in parts) / took


class _Line:
    """A connection to a node that stays open."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=120.0)

    def ask(self, method: str, path: str, token: str | None = None, body: Any = None) -> Any:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._connection.request(method, path, None if body is None else orjson.dumps(body), headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= http.client.BAD_REQUEST:
            raise UnavailableError(f"{method} {path}: {answer.status} {content[:200].decode(errors='replace')}")
        return orjson.loads(content)

    def close(self) -> None:
        self._connection.close()


def register(url: str, ids: Sequence[str]) -> list[str]:
    """Their tokens."""
    return _over_lines(url, 16, ids, lambda line, id: line.ask("POST", "/v1/subscribers", body={"id": id})["token"])


def send_in(url: str, token: str, receivers: Sequence[str], count: int) -> Timed:
    """So many letters, to each receiver in turn; numbered, so that sending one again would be harmless."""

    def send(line: _Line, first: int) -> None:
        numbers = range(first, min(first + _BUNDLE, count))
        letters = [
            {"to": receivers[i % len(receivers)], "number": i // len(receivers) + 1, "message": _MESSAGE}
            for i in numbers
        ]
        outcomes = line.ask("POST", "/v1/letters", token, letters)["letters"]
        if sum(outcome.get("new", False) for outcome in outcomes) != len(letters):
            raise UnavailableError(f"letters were refused: {[it for it in outcomes if 'error' in it][:1]}")

    in_turn = len(receivers) < _SENDING * _BUNDLE  # letters to one receiver must not overtake each other
    began = time.monotonic()
    _over_lines(url, 1 if in_turn else _SENDING, range(0, count, _BUNDLE), send)
    return Timed(began, time.monotonic(), count)


def read_out(url: str, tokens: Sequence[str]) -> Timed:
    """Every letter of these mailboxes, each acknowledged; in order, or it fails."""

    def read(line: _Line, some: Sequence[str]) -> int:
        places, had = dict.fromkeys(some, 0), 0
        while places:
            asked = [{"token": token, "ack": place, "limit": 1_000} for token, place in places.items()]
            answer = line.ask("POST", "/v1/mailboxes/pull", body=asked)["mailboxes"]
            for (token, place), pulled in zip(list(places.items()), answer, strict=True):
                letters = pulled["letters"]
                if [letter["offset"] for letter in letters] != list(range(place + 1, place + len(letters) + 1)):
                    raise UnavailableError("letters are missing or out of order")
                had += len(letters)
                if letters:
                    places[token] += len(letters)
                else:
                    del places[token]
        return had

    shares = [tokens[first : first + _MAILBOXES] for first in range(0, len(tokens), _MAILBOXES)]
    began = time.monotonic()
    letters = sum(_over_lines(url, _READING, shares, read))
    return Timed(began, time.monotonic(), letters)


def in_processes(work: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> list[T]:
    """Each call in a process of its own, all at a time."""
    context = get_context("spawn")
    with context.Pool(len(arguments)) as pool:
        pool.map(_nothing, range(8 * len(arguments)))  # by then all have started
        return pool.starmap(work, arguments, chunksize=1)


def _nothing(_: int) -> None:
    time.sleep(0.1)


def _over_lines(url: str, count: int, items: Sequence[Any], act: Callable[[_Line, Any], T]) -> list[T]:
    """`act` on each item over one of so many connections, in order."""
    lines: SimpleQueue[_Line] = SimpleQueue()
    for _ in range(count):
        lines.put(_Line(url))

    def over_line(item: Any) -> T:
        line = lines.get()
        try:
            return act(line, item)
        finally:
            lines.put(line)

    with ThreadPoolExecutor(count) as pool:
        done = list(pool.map(over_line, items))
    while not lines.empty():
        lines.get().close()
    return done
