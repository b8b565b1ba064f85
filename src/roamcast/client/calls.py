"""Every call of the HTTP API as a flow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

from roamcast.client.ack_group import AckGroup
from roamcast.client.bulk_calls import BULK_TIME
from roamcast.client.flow import (
    ApiRequest,
    Flow,
    as_list,
    error_from_json,
    exchange,
    json_body,
    nothing,
    quoted,
    without_none,
)
from roamcast.client.mailbox import MailboxAccess
from roamcast.client.numbers import NumberReservations
from roamcast.client.publishing import Events, publish_body
from roamcast.client.remote_publishing import RemotePublishing
from roamcast.client.source_calls import SourceCalls
from roamcast.client.subscription_calls import SubscriptionCalls
from roamcast.client.tokens import TokenFile
from roamcast.client.values import (
    Letter,
    MailboxLetters,
    PublishReceipt,
    letter_from_json,
)
from roamcast.errors import AuthenticationError, ConflictError, InputError, UnavailableError
from roamcast.security.tokens import new_token

__all__ = ["DELAYS", "ApiCalls", "Attributes", "EntityKind", "Events"]

DELAYS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0)
"""Default seconds between attempts: enough for a node that restarts within ten seconds."""


T = TypeVar("T")

EntityKind = Literal["source", "subscriber", "gateway"]
Attributes = Mapping[str, str | float | bool]


class ApiCalls(SubscriptionCalls, SourceCalls):
    """The calls of one entity. Holds its token and its reserved sequence numbers. Thread-safe."""

    def __init__(self, token: str | None, delays: Sequence[float], name: str | None = None) -> None:
        self._token = token
        self._has_name = name is not None
        self.delays = delays
        self.mailbox = MailboxAccess(lambda: self._token, name, delays)
        self._remote = RemotePublishing(lambda: self._token, delays)
        self.processed = AckGroup()
        self._numbers = NumberReservations(delays)

    @property
    def token(self) -> str | None:
        """The token to send. None for a client with a name: its node may be any, and must not learn the token."""
        return None if self._has_name else self._token

    def register(
        self,
        kind: EntityKind,
        id: str,
        attributes: Attributes | None,
        x: float | None,
        y: float | None,
        token: str | None = None,
    ) -> Flow[str]:
        # The token is chosen here, so that a retry after a lost response is the same registration.
        body = json_body(without_none(id=id, attributes=attributes, x=x, y=y, token=token or new_token()))
        request = ApiRequest("POST", f"/v1/{kind}s", body, token="")
        self._token = registered = yield from exchange(request, self.delays, lambda reply: str(reply["token"]))
        return registered

    def connect(
        self,
        kind: EntityKind,
        id: str,
        attributes: Attributes | None,
        x: float | None,
        y: float | None,
        url: str,
        tokens: TokenFile,
    ) -> Flow[None]:
        """Act as an entity of this machine, with its stored token. Registers it, the first time.

        The token is stored before the entity is registered with it: a crash in between does no harm. Programs that do
        this at the same time get the same token.
        """
        is_new = tokens.get(url, id) is None
        self._token = token = tokens.get_or_create(url, id)
        try:
            known = (yield from self.me())["kind"]
        except AuthenticationError:  # it was never registered, or the data of the node was deleted
            try:
                yield from self.register(kind, id, attributes, x, y, token)
            except (ConflictError, InputError) as error:
                if is_new:
                    tokens.remove(url, id)
                if isinstance(error, ConflictError):
                    error.hint = f"use another id, or set ROAMCAST_TOKENS to the file with its token, not {tokens.path}"
                raise
            return
        if known != kind:
            raise ConflictError(f"{id} is a {known}", where=id, hint=f"use another id for the {kind}")

    def me(self) -> Flow[dict[str, Any]]:
        return self._call(ApiRequest("GET", "/v1/me"), dict)

    def set_attributes(self, attributes: Attributes, source: str | None = None) -> Flow[dict[str, Any]]:
        path = "/v1/me/attributes" if source is None else f"/v1/sources/{quoted(source)}/attributes"
        return self._call(ApiRequest("PUT", path, json_body(dict(attributes))), dict)

    def renew_token(self, id: str | None) -> Flow[str]:
        is_own = id is None
        if id is None:
            id = (yield from self.me())["id"]
        request = ApiRequest("POST", f"/v1/entities/{quoted(str(id))}/token", repeatable=False)
        token = yield from exchange(request, self.delays, lambda reply: str(reply["token"]))
        if is_own:
            self._token = token
            self.mailbox = MailboxAccess(lambda: self._token, None, self.delays)
        return token

    def forget_position(self, source: str | None = None) -> Flow[None]:
        path = "/v1/me/position" if source is None else f"/v1/sources/{quoted(source)}/position"
        return self._call(ApiRequest("DELETE", path), nothing)

    def unregister(self, sources: bool) -> Flow[None]:
        gone = None if self._has_name else 401  # the token of a mailbox may be refused although the subscriber exists
        parameters = {"sources": "true"} if sources else {}
        extra_time = BULK_TIME if sources else 0.0
        return self._call(
            ApiRequest("DELETE", "/v1/me", parameters=parameters, extra_time=extra_time), nothing, gone=gone
        )

    def entity(self, id: str) -> Flow[dict[str, Any]]:
        return self._call(ApiRequest("GET", f"/v1/entities/{quoted(id)}"), dict)

    def publish(self, events: Events, domain: str | None) -> Flow[PublishReceipt]:
        body = yield from publish_body(events, self._numbers.reserve)
        request = ApiRequest("POST", "/v1/events", body.content, headers=body.headers)
        if domain is not None:
            request = yield from self._remote.request(domain, request)
        try:
            return (
                yield from exchange(
                    request,
                    self.delays,
                    lambda reply: PublishReceipt(reply["accepted"], reply["first_seq"], reply["last_seq"]),
                    refused=lambda: self._numbers.reuse(body.numbers),
                )
            )
        except UnavailableError:
            self._remote.forget_peers()
            raise

    def reserve_numbers(self, count: int, source: str | None) -> Flow[list[int]]:
        numbers = yield from self._numbers.reserve({source: count})
        return numbers[source]

    def move(self, x: float, y: float, time: float | str | None) -> Flow[bool]:
        body = json_body(without_none(x=x, y=y, time=time))
        return self._call(ApiRequest("POST", "/v1/positions", body), lambda reply: not reply["stale"])

    def pull(self, limit: int, after: int, wait: float) -> Flow[list[Letter]]:
        parameters = {"limit": limit, "after": after, "wait": wait}
        return self.mailbox.call(
            lambda: self.mailbox.request("GET", "/v1/mailbox", parameters=parameters, extra_time=wait),
            lambda reply: [letter_from_json(letter) for letter in reply["letters"]],
        )

    def pull_many(self, acks: Mapping[str, int], limit: int, wait: float) -> Flow[dict[str, MailboxLetters]]:
        if not acks:
            raise InputError("no mailboxes to pull", where="acks", hint="pass the token of at least one")
        body = json_body([{"token": token, "through": ack, "limit": limit} for token, ack in acks.items()])
        request = ApiRequest("POST", "/v1/mailboxes/pull", body, parameters={"wait": wait}, extra_time=wait)
        return exchange(request, self.delays, lambda reply: _mailboxes_from_json(acks, reply["mailboxes"]))

    def acknowledge(self, through: int | Letter) -> Flow[int]:
        return self.mailbox.call(lambda: self._acknowledgement(through), _acknowledged)

    def acknowledge_once(self, through: int) -> Flow[int]:
        """Without retries."""
        return exchange(self._acknowledgement(through), (), _acknowledged)

    def _acknowledgement(self, through: int | Letter) -> ApiRequest:
        body = json_body({"through": through.offset if isinstance(through, Letter) else through})
        return self.mailbox.request("POST", "/v1/mailbox/ack", body)

    def scene(self) -> Flow[dict[str, Any]]:
        return exchange(ApiRequest("GET", "/v1/scene"), self.delays, dict)

    def update_scene(
        self, layer: str, set: Mapping[str, Any] | None, remove: Iterable[str], clear: bool, ttl: float | None
    ) -> Flow[None]:
        body = without_none(layer=layer, set=set, remove=as_list(remove) or None, clear=clear or None, ttl=ttl)
        return exchange(ApiRequest("POST", "/v1/scene", json_body(body)), self.delays, nothing)

    def expel(self, domain: str) -> Flow[None]:
        return exchange(ApiRequest("DELETE", f"/v1/offices/{quoted(domain)}"), self.delays, nothing)

    def invite(self, domain: str) -> Flow[str]:
        request = ApiRequest("POST", "/v1/office/invitations", json_body({"domain": domain}))
        return exchange(request, self.delays, lambda reply: str(reply["invitation"]))

    def offices(self) -> Flow[list[dict[str, Any]]]:
        return exchange(ApiRequest("GET", "/v1/offices"), self.delays, lambda reply: list(reply["offices"]))

    def nearest(self, x: float, y: float) -> Flow[str]:
        request = ApiRequest("GET", "/v1/offices/nearest", parameters={"x": x, "y": y})
        return exchange(request, self.delays, lambda reply: str(reply["url"]))

    def health(self) -> Flow[dict[str, Any]]:
        return exchange(ApiRequest("GET", "/healthz"), self.delays, dict)

    def _call(
        self,
        request: ApiRequest,
        read: Callable[[Any], T],
        gone: int | None = None,
        read_again: Callable[[Any], T] | None = None,
    ) -> Flow[T]:
        """A call about the entity itself. A client with a name makes it where the mailbox is; its home answers."""
        if not self._has_name:
            return exchange(request, self.delays, read, gone=gone, read_again=read_again)
        mailbox = self.mailbox
        return mailbox.call(
            lambda: replace(request, url=mailbox.url, token=mailbox.mailbox_token), read, gone, read_again
        )


def _acknowledged(reply: Mapping[str, Any]) -> int:
    return int(reply["acknowledged"])


def _mailboxes_from_json(tokens: Iterable[str], mailboxes: Sequence[Mapping[str, Any]]) -> dict[str, MailboxLetters]:
    """Those with letters or an error."""
    by_token: dict[str, MailboxLetters] = {}
    for token, fields in zip(tokens, mailboxes, strict=True):
        if "error" in fields:
            by_token[token] = MailboxLetters((), 0, error_from_json(fields["error"]))
        elif fields["letters"]:
            by_token[token] = MailboxLetters(tuple(map(letter_from_json, fields["letters"])), fields["waiting"])
    return by_token
