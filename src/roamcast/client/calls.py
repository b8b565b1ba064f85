"""Every call that a node understands, as a flow."""

from __future__ import annotations

import json
import threading
import uuid
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from roamcast.client.flow import Answer, Failure, Flow, Request, body_of, error_of, exchange
from roamcast.client.mailbox import Post
from roamcast.client.remote_publishing import Abroad
from roamcast.client.sse import EventReader
from roamcast.client.values import (
    Accepted,
    Binding,
    Letter,
    Subscription,
    binding_of,
    letter_of,
    subscription_of,
)
from roamcast.errors import ElsewhereError, InputError, UnavailableError
from roamcast.model import Box

__all__ = ["DELAYS", "Attributes", "Calls", "Events", "LetterStream"]

DELAYS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0)
"""Seconds between tries: a node that restarts within ten seconds is not noticed."""

# How many numbers a node sets aside at a time, and how many are asked for without need.
_MOST_NUMBERS = 10_000
_MOST_RESERVED = 1_000

Attributes = Mapping[str, str | float | bool]
Events = Mapping[str, Any] | Iterable[Mapping[str, Any]]


class Calls:
    """The calls of one entity: holds its token and numbers for its next events. Safe between threads."""

    def __init__(self, token: str | None, delays: Sequence[float], name: str | None = None) -> None:
        self._token = token
        self._named = name is not None
        self.delays = delays
        self.post = Post(lambda: self._token, name, delays)
        self._abroad = Abroad(lambda: self._token, delays)
        self._numbers: deque[int] = deque()
        self._reserve = 1
        self._numbering = threading.Lock()

    @property
    def token(self) -> str | None:
        """What is sent as a proof of who one is; nothing if one is known by a name, as the node may be any."""
        return None if self._named else self._token

    def register(
        self, kind: str, id: str, attributes: Attributes | None, x: float | None, y: float | None
    ) -> Flow[str]:
        body = _given(id=id, attributes=attributes, x=x, y=y)
        request = Request("POST", f"/v1/{kind}s", body_of(body), safe=False)
        self._token = token = yield from exchange(request, self.delays, lambda answer: str(answer["token"]))
        return token

    def me(self) -> Flow[dict[str, Any]]:
        return exchange(Request("GET", "/v1/me"), self.delays, dict)

    def change(self, attributes: Attributes) -> Flow[dict[str, Any]]:
        return exchange(Request("PUT", "/v1/me/attributes", body_of(dict(attributes))), self.delays, dict)

    def new_token(self, id: str | None) -> Flow[str]:
        own = id is None
        if id is None:
            id = (yield from self.me())["id"]
        path = f"/v1/entities/{quote(str(id), safe='')}/token"
        token = yield from exchange(Request("POST", path, safe=False), self.delays, lambda answer: str(answer["token"]))
        if own:
            self._token = token
            self.post = Post(lambda: self._token, None, self.delays)
        return token

    def forget_position(self) -> Flow[None]:
        return exchange(Request("DELETE", "/v1/me/position"), self.delays, _nothing)

    def leave(self) -> Flow[None]:
        return exchange(Request("DELETE", "/v1/me"), self.delays, _nothing, gone=401)

    def where(self, id: str) -> Flow[dict[str, Any]]:
        return exchange(Request("GET", f"/v1/entities/{quote(id, safe='')}"), self.delays, dict)

    def publish(self, events: Events, at: str | None) -> Flow[Accepted]:
        batch = [dict(events)] if isinstance(events, Mapping) else [dict(event) for event in events]
        if not batch:
            raise InputError("there is no event to publish", where="events", hint="give at least one")
        unnumbered = [event for event in batch if event.get("seq") is None]
        numbers = yield from self.take_numbers(len(unnumbered))
        for event, number in zip(unnumbered, numbers, strict=True):
            event["seq"] = number
        body = body_of(batch)
        request = Request("POST", "/v1/events", body) if at is None else (yield from self._abroad.request(at, body))
        try:
            return (
                yield from exchange(
                    request,
                    self.delays,
                    lambda answer: Accepted(answer["accepted"], answer["first_seq"], answer["last_seq"]),
                )
            )
        except UnavailableError:
            self._abroad.forget()
            raise

    def take_numbers(self, count: int) -> Flow[list[int]]:
        """Numbers that the node has set aside for this client alone: others may publish for the source meanwhile.

        More are set aside each time, so that a client that goes on publishing seldom asks, and one that publishes
        once leaves no gap.
        """
        taken: list[int] = []
        while True:
            with self._numbering:
                taken += [self._numbers.popleft() for _ in range(min(count - len(taken), len(self._numbers)))]
                missing = count - len(taken)
                wanted = min(max(missing, self._reserve), _MOST_NUMBERS)
                self._reserve = min(2 * wanted, _MOST_RESERVED)
            if not missing:
                return taken
            request = Request("POST", "/v1/numbers", body_of({"count": wanted}))
            first, got = yield from exchange(request, self.delays, lambda answer: (answer["first"], answer["count"]))
            with self._numbering:
                self._numbers.extend(range(first, first + got))

    def move(self, x: float, y: float, time: float | str | None) -> Flow[bool]:
        body = body_of(_given(x=x, y=y, time=time))
        return exchange(Request("POST", "/v1/positions", body), self.delays, lambda answer: not answer["stale"])

    def subscribe(
        self, lacl: str | None, box: Sequence[float] | None, terms: Iterable[str], id: str | None
    ) -> Flow[str]:
        if box is not None and len(box) != 4:
            raise InputError("a box has four numbers", where="box", hint="give min_x, min_y, max_x, max_y")
        region = None if box is None else Box(*box)._asdict()
        # The id is made here, so that a second try after a lost answer is the same subscription.
        body = _given(id=id or uuid.uuid4().hex, lacl=lacl, region=region, terms=_texts(terms) or None)
        request = Request("POST", "/v1/subscriptions", body_of(body))
        return exchange(request, self.delays, lambda answer: str(answer["id"]))

    def unsubscribe(self, id: str) -> Flow[None]:
        request = Request("DELETE", f"/v1/subscriptions/{quote(id, safe='')}")
        return exchange(request, self.delays, _nothing, gone=404)

    def subscription(self, id: str) -> Flow[Subscription]:
        request = Request("GET", f"/v1/subscriptions/{quote(id, safe='')}")
        return exchange(request, self.delays, subscription_of)

    def subscriptions(self) -> Flow[list[Subscription]]:
        found: list[Subscription] = []
        more = True
        while more:
            parameters = {"after": found[-1].id} if found else {}
            request = Request("GET", "/v1/subscriptions", parameters=parameters)
            page, more = yield from exchange(
                request,
                self.delays,
                lambda answer: ([subscription_of(s) for s in answer["subscriptions"]], bool(answer["more"])),
            )
            found += page
        return found

    def explain(self, id: str, event: Mapping[str, Any]) -> Flow[dict[str, Any]]:
        path = f"/v1/subscriptions/{quote(id, safe='')}/explain"
        return exchange(Request("POST", path, body_of(dict(event))), self.delays, dict)

    def bindings(self, id: str, limit: int, skip: int) -> Flow[list[Binding]]:
        path = f"/v1/subscriptions/{quote(id, safe='')}/bindings"
        request = Request("GET", path, parameters={"limit": limit, "skip": skip})
        return exchange(request, self.delays, lambda answer: [binding_of(b) for b in answer["bindings"]])

    def pull(self, limit: int, after: int, wait: float) -> Flow[list[Letter]]:
        parameters = {"limit": limit, "after": after, "wait": wait}
        return self.post.served(
            lambda: self.post.request("GET", "/v1/mailbox", parameters=parameters, extra_time=wait),
            lambda answer: [letter_of(letter) for letter in answer["letters"]],
        )

    def acknowledge(self, through: int | Letter) -> Flow[int]:
        place = through.place if isinstance(through, Letter) else through
        body = body_of({"through": place})
        return self.post.served(
            lambda: self.post.request("POST", "/v1/mailbox/ack", body), lambda answer: int(answer["acknowledged"])
        )

    def scene(self) -> Flow[dict[str, Any]]:
        return exchange(Request("GET", "/v1/scene"), self.delays, dict)

    def update_scene(
        self, layer: str, set: Mapping[str, Any] | None, remove: Iterable[str], clear: bool, ttl: float | None
    ) -> Flow[None]:
        body = _given(layer=layer, set=set, remove=_texts(remove) or None, clear=clear or None, ttl=ttl)
        return exchange(Request("POST", "/v1/scene", body_of(body)), self.delays, _nothing)

    def expel(self, domain: str) -> Flow[None]:
        return exchange(Request("DELETE", f"/v1/offices/{quote(domain, safe='')}"), self.delays, _nothing)

    def invite(self, domain: str) -> Flow[str]:
        request = Request("POST", "/v1/office/invitations", body_of({"domain": domain}))
        return exchange(request, self.delays, lambda answer: str(answer["invitation"]))

    def offices(self) -> Flow[list[dict[str, Any]]]:
        return exchange(Request("GET", "/v1/offices"), self.delays, lambda answer: list(answer["offices"]))

    def nearest(self, x: float, y: float) -> Flow[str]:
        request = Request("GET", "/v1/offices/nearest", parameters={"x": x, "y": y})
        return exchange(request, self.delays, lambda answer: str(answer["url"]))

    def health(self) -> Flow[dict[str, Any]]:
        return exchange(Request("GET", "/healthz"), self.delays, dict)


class LetterStream:
    """Where one is in the stream of a mailbox: each letter once, however often the stream breaks."""

    def __init__(self, after: int, delays: Sequence[float], post: Post) -> None:
        self._after = after
        self._post = post
        self._delays = delays
        self._failures = 0
        self._reader = EventReader()

    def request(self) -> Request:
        """What to send, for the first time or again."""
        self._reader = EventReader()
        headers = {"accept": "text/event-stream", "last-event-id": str(self._after)}
        return self._post.request("GET", "/v1/mailbox/stream", headers=headers)

    def broken(self, outcome: Answer | Failure) -> tuple[list[Letter], float]:
        """How long to wait before the next try. Raises what cannot be mended by trying again."""
        self._failures += 1
        mendable = isinstance(outcome, Failure) or outcome.status >= 500
        if not mendable or self._failures > len(self._delays):
            raise error_of(outcome)
        return [], self._delays[self._failures - 1]

    def feed(self, piece: bytes) -> list[Letter]:
        self._failures = 0
        self._post.is_new = False
        letters = []
        for event in self._reader.feed(piece):
            if event.name == "moved":
                raise ElsewhereError(
                    "the mailbox has moved on", where=self._post.name, hint="migrate, if the subscriber is here now"
                )
            if event.name == "letter":
                letter = letter_of(json.loads(event.data))
                if letter.place > self._after:
                    self._after = letter.place
                    letters.append(letter)
        return letters


def _given(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def _texts(texts: Iterable[str]) -> list[str]:
    """One text is one text, not its letters."""
    return [texts] if isinstance(texts, str) else list(texts)


def _nothing(answer: object) -> None:
    return None
