"""Access to a subscriber's mailbox, wherever it is: reading, sending and migration."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from roamcast.client.flow import ApiRequest, Flow, Pause, exchange, json_body
from roamcast.client.values import LetterTrace, SendReceipt
from roamcast.errors import ElsewhereError, InputError, UnavailableError, UncertainError
from roamcast.security.move_proofs import MoveProofChain

__all__ = ["MailboxAccess"]

T = TypeVar("T")

_MAX_ATTEMPTS = 5
_ARRIVAL_TIME = 10.0  # seconds that an arrival may take
_MAX_EPOCH_STEP = 10**9  # an office that reports a later epoch is broken or hostile, and would use them up
_SEND_POLL = 0.005  # seconds until a letter that waits for an earlier one to the same receiver checks again


class MailboxAccess:
    """The mailbox of one subscriber, which follows the subscriber from office to office.

    With a `name` the token itself is never sent: the subscriber arrives with a move proof made from the token and gets
    a mailbox token. Without a name, the mailbox is read at home with the token until `arrive` is called.
    """

    def __init__(self, token: Callable[[], str | None], name: str | None, delays: Sequence[float]) -> None:
        self._token = token
        self._delays = delays
        self._chain: MoveProofChain | None = None
        self._last_numbers: dict[str, int] = {}  # of the last letter to each receiver, while known for certain
        self._sending: set[str] = set()  # receivers that a letter is being sent to
        self._lock = threading.Lock()
        self._must_arrive = name is not None
        self.name = name
        self.office: str | None = None
        self.epoch = 1
        self.url: str | None = None
        self.mailbox_token: str | None = None
        self.has_answered = False

    def request(self, method: str, path: str, body: bytes | None = None, **options: Any) -> ApiRequest:
        """A request about the mailbox, to the office that has it."""
        return ApiRequest(method, path, body, url=self.url, token=self.mailbox_token, **options)

    def call(
        self,
        make_request: Callable[[], ApiRequest],
        read: Callable[[Any], T],
        gone: int | None = None,
        read_again: Callable[[Any], T] | None = None,
    ) -> Flow[T]:
        """Send a request about the mailbox, arriving first where needed.

        If the very first call finds the mailbox elsewhere, bring it here and repeat. Later calls raise ElsewhereError:
        another program has moved the mailbox, and the two should not compete for it.
        """
        yield from self.ensure_arrived()
        try:
            result = yield from exchange(make_request(), self._delays, read, gone=gone, read_again=read_again)
        except ElsewhereError:
            if self.has_answered:
                raise
            yield from self.arrive(self.url)
            result = yield from exchange(make_request(), self._delays, read, gone=gone, read_again=read_again)
        self.has_answered = True
        return result

    def ensure_arrived(self) -> Flow[None]:
        """Arrive if nothing else is possible before."""
        if self._must_arrive:
            yield from self.arrive(self.url)

    def arrive(self, url: str | None) -> Flow[None]:
        """Migrate the mailbox to the node at `url`; None is the client's own node."""
        name = self.name or (yield from self._own_name())
        chain = self._chain = self._chain or self._new_chain()
        epoch = self.epoch + 1
        for attempt in range(_MAX_ATTEMPTS):
            arrival = {
                "name": name,
                "epoch": epoch,
                "move_proof": str(chain.proof(name, epoch)),
                "secret": secrets.token_urlsafe(16),
                "previous": self.office,
            }
            body = json_body(arrival)
            request = ApiRequest("POST", "/v1/arrivals", body, url=url, token="", extra_time=_ARRIVAL_TIME)
            try:
                token, office = yield from exchange(
                    request, self._delays, lambda reply: (reply["token"], reply["office"])
                )
            except ElsewhereError as elsewhere:
                if attempt == _MAX_ATTEMPTS - 1 or elsewhere.epoch > epoch + _MAX_EPOCH_STEP:
                    raise
                epoch = max(epoch, elsewhere.epoch) + 1
                continue
            self.name, self.epoch, self.office = name, epoch, office
            self.url, self.mailbox_token, self._must_arrive, self.has_answered = url, token, False, True
            return

    def send(self, to: str, message: object, title: str, ttl: float | None, number: int | None) -> Flow[SendReceipt]:
        """Send one letter at a time to each receiver: the office accepts them in the order of their numbers."""
        while not self._begin(to):
            yield Pause(_SEND_POLL)
        try:
            if number is None:
                last = self._last_numbers.get(to)
                number = 1 + ((yield from self._last_number(to)) if last is None else last)
            fields = {"to": to, "message": message, "title": title, "number": number}
            body = json_body(fields if ttl is None else {**fields, "ttl": ttl})
            self._last_numbers.pop(to, None)  # unknown until the office confirms
            receipt = yield from self._post_letter(body, number)
            self._last_numbers[to] = number
            return receipt
        finally:
            self._sending.discard(to)

    def _begin(self, to: str) -> bool:
        with self._lock:
            if to in self._sending:
                return False
            self._sending.add(to)
            return True

    def _last_number(self, to: str) -> Flow[int]:
        return self.call(
            lambda: self.request("GET", "/v1/letters/last", parameters={"to": to}), lambda reply: int(reply["number"])
        )

    def _post_letter(self, body: bytes, number: int) -> Flow[SendReceipt]:
        try:
            return (
                yield from self.call(
                    lambda: self.request("POST", "/v1/letters", body),
                    lambda reply: SendReceipt(reply["sender"], reply["receiver"], reply["number"]),
                )
            )
        except UnavailableError as error:
            hint = f"the letter may have been accepted; to send it again safely, pass number {number}"
            uncertain = UncertainError(error.message, where=error.where, hint=hint)
            uncertain.number = number
            raise uncertain from error

    def trace(self, to: str, number: int) -> Flow[LetterTrace]:
        return self.call(
            lambda: self.request("GET", f"/v1/letters/{number}", parameters={"to": to}, extra_time=5.0),
            lambda reply: LetterTrace(reply["receiver"], reply["number"], reply["state"], reply["office"]),
        )

    def _own_name(self) -> Flow[str]:
        return exchange(ApiRequest("GET", "/v1/me"), self._delays, lambda reply: str(reply["name"]))

    def _new_chain(self) -> MoveProofChain:
        if (token := self._token()) is None:
            raise InputError("migration needs the subscriber's token", where="token", hint="pass token=, or register")
        return MoveProofChain(token)
