"""How a source publishes at nodes of other domains than its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from roamcast.client.flow import Flow, Request, exchange
from roamcast.errors import InputError, NotFoundError
from roamcast.security.publish_proofs import Passport

__all__ = ["Abroad"]


class Abroad:
    """Asks the source's home who it is and where others are, and remembers that until it is told to `forget`."""

    def __init__(self, token: Callable[[], str | None], delays: Sequence[float]) -> None:
        self._token = token
        self._delays = delays
        self._id = ""
        self._home = ""
        self._urls: Mapping[str, str] = {}

    def request(self, domain: str, body: bytes) -> Flow[Request]:
        """Events to the node of `domain`. Raises NotFoundError if no office of it has joined."""
        if (token := self._token()) is None:
            raise InputError("a source needs its token to publish", where="token", hint="give the token it was told")
        if domain not in (self._home, *self._urls):
            self._id = yield from exchange(Request("GET", "/v1/me"), self._delays, lambda answer: str(answer["id"]))
            offices = Request("GET", "/v1/offices")
            self._home, self._urls = yield from exchange(
                offices,
                self._delays,
                lambda answer: (str(answer["domain"]), {it["domain"]: it["url"] for it in answer["offices"]}),
            )
        plain = Request("POST", "/v1/events", body)
        if domain == self._home:
            return plain
        if domain not in self._urls:
            raise NotFoundError(f"no office of {domain!r} has joined", where="at", hint="see `offices`")
        passport = Passport.made(token, self._home, self._id, domain)
        return Request("POST", "/v1/events", body, at=self._urls[domain], token=str(passport))

    def forget(self) -> None:
        """A node may be elsewhere by now."""
        self._urls = {}
