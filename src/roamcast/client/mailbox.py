"""Where a subscriber's mailbox is, and how it gets where the subscriber is."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from roamcast.client.flow import Flow, Pause, Request, body_of, exchange
from roamcast.client.values import Sent, Trace
from roamcast.errors import ElsewhereError, InputError, UnavailableError, UncertainError
from roamcast.security.move_proofs import Chain

__all__ = ["Post"]

T = TypeVar("T")

_ARRIVALS_AT_MOST = 5
_ARRIVAL_TAKES = 10.0  # seconds
_FURTHEST = 10**9  # epochs: an office that says it is later lies, and would use them up
_TURN = 0.005  # seconds until a letter behind another to the same receiver looks again


class Post:
    """The mailbox of one subscriber, which follows it.

    With a `name` the token itself is never sent: the subscriber arrives, with a warrant made from its token, and gets
    another token for the mailbox there. Without, the mailbox is read at home with the token, until `migrate`.
    """

    def __init__(self, token: Callable[[], str | None], name: str | None, delays: Sequence[float]) -> None:
        self._token = token
        self._delays = delays
        self._chain: Chain | None = None
        self._numbers: dict[str, int] = {}  # of the last letter to each receiver, if it is known for sure
        self._sending: set[str] = set()  # receivers that a letter is under way to
        self._turns = threading.Lock()
        self.name = name
        self.office: str | None = None
        self.epoch = 1
        self.at: str | None = None
        self.visiting: str | None = None  # the token for the mailbox where it is
        self.is_new = True  # no call has been answered yet
        self._must_arrive = name is not None

    def request(self, method: str, path: str, body: bytes | None = None, **more: Any) -> Request:
        """A request about the mailbox, to where it is."""
        return Request(method, path, body, at=self.at, token=self.visiting, **more)

    def served(self, make: Callable[[], Request], read: Callable[[Any], T]) -> Flow[T]:
        """Arrive first, or at home if the first call says that the mailbox is elsewhere. Later ones raise it: another
        program has taken it along, and should not have to fight for it.
        """
        yield from self.settle()
        try:
            answer = yield from exchange(make(), self._delays, read)
        except ElsewhereError:
            if not self.is_new:
                raise
            yield from self.arrive(self.at)
            answer = yield from exchange(make(), self._delays, read)
        self.is_new = False
        return answer

    def settle(self) -> Flow[None]:
        """Arrive where one has to before anything else."""
        if self._must_arrive:
            yield from self.arrive(self.at)

    def arrive(self, url: str | None) -> Flow[None]:
        """Have the mailbox at the node at `url`; None is the client's own."""
        name = self.name or (yield from self._ask_name())
        chain = self._chain = self._chain or self._new_chain()
        epoch = self.epoch + 1
        for attempt in range(_ARRIVALS_AT_MOST):
            warrant = str(chain.warrant(name, epoch))
            secret = secrets.token_urlsafe(16)
            asked = {"name": name, "epoch": epoch, "warrant": warrant, "secret": secret, "previous": self.office}
            request = Request("POST", "/v1/arrivals", body_of(asked), at=url, token="", extra_time=_ARRIVAL_TAKES)
            try:
                token, office = yield from exchange(request, self._delays, lambda it: (it["token"], it["office"]))
            except ElsewhereError as elsewhere:
                if attempt == _ARRIVALS_AT_MOST - 1 or elsewhere.epoch > epoch + _FURTHEST:
                    raise
                epoch = max(epoch, elsewhere.epoch) + 1
                continue
            self.name, self.epoch, self.office = name, epoch, office
            self.at, self.visiting, self._must_arrive, self.is_new = url, token, False, False
            return

    def send(self, to: str, message: object, title: str, ttl: float | None, number: int | None) -> Flow[Sent]:
        """One letter to a receiver at a time: the office takes them in turn."""
        while not self._begin(to):
            yield Pause(_TURN)
        try:
            if number is None:
                last = self._numbers.get(to)
                number = 1 + ((yield from self._last(to)) if last is None else last)
            body = {"to": to, "message": message, "title": title, "number": number}
            given = body_of(body if ttl is None else {**body, "ttl": ttl})
            self._numbers.pop(to, None)  # to be asked for again, unless all goes well
            sent = yield from self._sent(given, number)
            self._numbers[to] = number
            return sent
        finally:
            self._sending.discard(to)

    def _begin(self, to: str) -> bool:
        with self._turns:
            if to in self._sending:
                return False
            self._sending.add(to)
            return True

    def _last(self, to: str) -> Flow[int]:
        return self.served(
            lambda: self.request("GET", "/v1/letters/last", parameters={"to": to}), lambda it: int(it["number"])
        )

    def _sent(self, given: bytes, number: int) -> Flow[Sent]:
        try:
            return (
                yield from self.served(
                    lambda: self.request("POST", "/v1/letters", given),
                    lambda it: Sent(it["sender"], it["receiver"], it["number"]),
                )
            )
        except UnavailableError as error:
            hint = f"it may have been taken: to send the same again give number {number}"
            uncertain = UncertainError(error.message, where=error.where, hint=hint)
            uncertain.number = number
            raise uncertain from error

    def trace(self, to: str, number: int) -> Flow[Trace]:
        return self.served(
            lambda: self.request("GET", f"/v1/letters/{number}", parameters={"to": to}, extra_time=5.0),
            lambda it: Trace(it["receiver"], it["number"], it["fate"], it["office"]),
        )

    def _ask_name(self) -> Flow[str]:
        return exchange(Request("GET", "/v1/me"), self._delays, lambda answer: str(answer["name"]))

    def _new_chain(self) -> Chain:
        if (token := self._token()) is None:
            raise InputError("a subscriber needs its token to arrive", where="token", hint="give the token it was told")
        return Chain(token)
