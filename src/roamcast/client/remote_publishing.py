"""Publishing at nodes of other domains than the source's home."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from roamcast.client.flow import ApiRequest, Flow, exchange
from roamcast.errors import InputError, NotFoundError, PermissionDeniedError
from roamcast.security.tokens import PublishProof

__all__ = ["RemotePublishing"]


class RemotePublishing:
    """Builds publish requests to peers of the home node. Caches the source's id and the peers' addresses."""

    def __init__(self, token: Callable[[], str | None], delays: Sequence[float]) -> None:
        self._token = token
        self._delays = delays
        self._id = ""
        self._home = ""
        self._urls: Mapping[str, str] = {}

    def request(self, domain: str, own: ApiRequest) -> Flow[ApiRequest]:
        """The request that publishes at the node of `domain` what `own` publishes at the source's own node.

        Raises NotFoundError if no such peer has joined.
        """
        if (token := self._token()) is None:
            raise InputError("publishing needs the source's token", where="token", hint="pass token=, or register")
        if domain not in (self._home, *self._urls):
            self._id, kind = yield from exchange(
                ApiRequest("GET", "/v1/me"), self._delays, lambda reply: (str(reply["id"]), reply["kind"])
            )
            if kind == "gateway":
                raise PermissionDeniedError(
                    f"gateway {self._id} publishes only at its home",
                    where="domain",
                    hint="register sources that publish elsewhere without a gateway: they need tokens",
                )
            self._home, self._urls = yield from exchange(
                ApiRequest("GET", "/v1/offices"),
                self._delays,
                lambda reply: (str(reply["domain"]), {peer["domain"]: peer["url"] for peer in reply["offices"]}),
            )
        if domain == self._home:
            return own
        if domain not in self._urls:
            raise NotFoundError(f"no peer of domain {domain!r} has joined", where="domain", hint="see Client.offices")
        proof = PublishProof.create(token, self._home, self._id, domain)
        return replace(own, url=self._urls[domain], token=str(proof))

    def forget_peers(self) -> None:
        """Look the addresses up again next time: a peer may have moved."""
        self._urls = {}
