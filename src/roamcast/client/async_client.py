"""The asyncio client. `client.py`, the blocking one, is generated from this file: see scripts/generate-client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from roamcast.client.arrow_tables import ArrowTable
from roamcast.client.async_mailbox_calls import AsyncMailboxCalls
from roamcast.client.async_node_calls import AsyncNodeCalls
from roamcast.client.calls import DELAYS, ApiCalls, Attributes, EntityKind, Events
from roamcast.client.defaults import DEFAULT_URL, client_defaults
from roamcast.client.streams import DemandStream, SourceDemandStream
from roamcast.client.tokens import TokenFile
from roamcast.client.transport import AsyncTransport
from roamcast.client.values import (
    Binding,
    PublishReceipt,
    SourceResult,
    Subscription,
    SubscriptionResult,
)

__all__ = ["AsyncClient"]


class AsyncClient(AsyncMailboxCalls, AsyncNodeCalls):
    """Talks to one node as one entity, identified by its token.

    `connect_subscriber`, `connect_source` and `connect_gateway` keep the token for you: a program that uses them can be
    restarted.

    A call that fails because the node is unreachable or answers 5xx is retried after each of `delays` seconds. Retries
    never repeat an effect. Errors of the node are raised as the same class. Several clients can share one `http`, which
    then stays open.

    With `name`, the full name of a subscriber of any domain, the given node is one that the subscriber visits: the
    first call migrates the mailbox there. The token itself is not sent then, only proofs made from it. Calls about its
    position, attributes and subscriptions are passed on to its home, and raise UnavailableError while that is away.
    `ca` is a PEM file with the certificates to trust. `timeout` is in seconds.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        token: str | None = None,
        *,
        name: str | None = None,
        ca: Path | str | None = None,
        timeout: float = 10.0,
        delays: Sequence[float] = DELAYS,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._calls = ApiCalls(token, delays, name)
        self._transport = AsyncTransport(url, self._calls, timeout, http, ca)

    @classmethod
    async def connect_subscriber(
        cls,
        id: str,
        url: str | None = None,
        *,
        attributes: Attributes | None = None,
        x: float | None = None,
        y: float | None = None,
        tokens: Path | str | None = None,
        ca: Path | str | None = None,
        timeout: float = 10.0,
    ) -> Self:
        """A client that acts as this subscriber, whenever it is called again on this machine.

        The first call registers the subscriber, with these attributes and position. Its token is kept in the file
        `tokens`, which the commands of roamcast use too. The defaults of this and of `url` are ROAMCAST_TOKENS,
        ROAMCAST_URL or the settings file. Raises ConflictError if the id was registered elsewhere, or as a source.
        """
        return await cls._connect("subscriber", id, url, attributes, x, y, tokens, ca, timeout)

    @classmethod
    async def connect_source(
        cls,
        id: str,
        url: str | None = None,
        *,
        attributes: Attributes | None = None,
        x: float | None = None,
        y: float | None = None,
        tokens: Path | str | None = None,
        ca: Path | str | None = None,
        timeout: float = 10.0,
    ) -> Self:
        """A client that acts as this source, whenever it is called again on this machine: see `connect_subscriber`."""
        return await cls._connect("source", id, url, attributes, x, y, tokens, ca, timeout)

    @classmethod
    async def connect_gateway(
        cls,
        id: str,
        url: str | None = None,
        *,
        attributes: Attributes | None = None,
        tokens: Path | str | None = None,
        ca: Path | str | None = None,
        timeout: float = 10.0,
    ) -> Self:
        """A client that acts as this gateway, whenever it is called again on this machine: see `connect_subscriber`.

        A gateway acts for the sources that it registers with `register_sources`.
        """
        return await cls._connect("gateway", id, url, attributes, None, None, tokens, ca, timeout)

    @classmethod
    async def _connect(
        cls,
        kind: EntityKind,
        id: str,
        url: str | None,
        attributes: Attributes | None,
        x: float | None,
        y: float | None,
        tokens: Path | str | None,
        ca: Path | str | None,
        timeout: float,
    ) -> Self:
        client = cls(url or client_defaults().url, ca=ca, timeout=timeout)
        store = TokenFile(None if tokens is None else Path(tokens))
        try:
            await client._transport.run(client._calls.connect(kind, id, attributes, x, y, client.url, store))
        except BaseException:
            await client.close()
            raise
        return client

    @property
    def url(self) -> str:
        """URL of the node, without a trailing slash."""
        return self._transport.url

    @property
    def token(self) -> str | None:
        """Token of the entity. Registering sets it."""
        return self._calls.token

    @property
    def mailbox_token(self) -> str | None:
        """Token for the mailbox at the office it has migrated to; None before a migration."""
        return self._calls.mailbox.mailbox_token

    async def register_source(
        self, id: str, *, attributes: Attributes | None = None, x: float | None = None, y: float | None = None
    ) -> str:
        """Register a source, act as it from now on, and return its token. The node shows the token only once."""
        return await self._transport.run(self._calls.register("source", id, attributes, x, y))

    async def register_subscriber(
        self, id: str, *, attributes: Attributes | None = None, x: float | None = None, y: float | None = None
    ) -> str:
        """Register a subscriber, act as it from now on, and return its token. The node shows the token only once."""
        return await self._transport.run(self._calls.register("subscriber", id, attributes, x, y))

    async def register_gateway(self, id: str, *, attributes: Attributes | None = None) -> str:
        """Register a gateway, act as it from now on, and return its token. The node shows the token only once."""
        return await self._transport.run(self._calls.register("gateway", id, attributes, None, None))

    async def register_sources(
        self, sources: Iterable[Mapping[str, Any]], *, all_or_none: bool = False
    ) -> list[SourceResult]:
        """Register sources that belong to this gateway. Each is a mapping with `id`, and any of `attributes`, `x`, `y`.

        They have no tokens of their own. Each is registered or refused on its own; the results are in the same order.
        One that the gateway has already stays as it is. With `all_or_none`, none is registered if one is refused; then
        there is a limit (10,000), and the error is raised.
        """
        return await self._transport.run(self._calls.register_sources(sources, all_or_none))

    async def sources(self) -> list[dict[str, Any]]:
        """The sources of this gateway, ordered by id."""
        return await self._transport.run(self._calls.sources())

    async def remove_source(self, id: str) -> None:
        """Remove a source of this gateway permanently; with the operator token, any source."""
        await self._transport.run(self._calls.remove_source(id))

    async def unregister(self, *, sources: bool = False) -> None:
        """Remove the entity permanently. A subscriber's subscriptions and mailbox are removed with it.

        A gateway that has sources is removed only with `sources`, which removes them, too.
        """
        await self._transport.run(self._calls.unregister(sources))

    async def renew_token(self, id: str | None = None) -> str:
        """Replace the token of this entity; with the operator token, of the entity `id`. Invalidates the old one."""
        return await self._transport.run(self._calls.renew_token(id))

    async def me(self) -> dict[str, Any]:
        """The entity of this client as the node knows it."""
        return await self._transport.run(self._calls.me())

    async def entity(self, id: str) -> dict[str, Any]:
        """An entity: kind, position, attributes, and its subscriptions or those bound to it.

        Entities see themselves; a gateway sees its sources; the operator token sees all.
        """
        return await self._transport.run(self._calls.entity(id))

    async def set_attributes(self, attributes: Attributes, *, source: str | None = None) -> dict[str, Any]:
        """Replace all attributes of the entity, or of this `source` of the gateway. Returns the entity."""
        return await self._transport.run(self._calls.set_attributes(attributes, source))

    async def move(self, x: float, y: float, *, time: float | str | None = None) -> bool:
        """Report the entity's position, now or at `time` (ISO 8601 with offset, or seconds since 1970).

        Returns False if a later position is known already, so that this one changed nothing.
        """
        return await self._transport.run(self._calls.move(x, y, time))

    async def move_many(self, positions: Iterable[Mapping[str, Any]]) -> int:
        """Report many positions: mappings with `x`, `y`, perhaps `time`, and for a gateway `entity`, the source.

        Each 5,000 are applied together or, if one is refused, not at all. Returns how many changed nothing, because a
        later position is known already.
        """
        return await self._transport.run(self._calls.move_many(positions))

    async def forget_position(self, *, source: str | None = None) -> None:
        """Erase the position and the binding history of the entity, or of this `source` of the gateway."""
        await self._transport.run(self._calls.forget_position(source))

    async def publish(self, events: Events, *, domain: str | None = None) -> PublishReceipt:
        """Publish one event or several, all or none. They are on the node's disk when this returns.

        An event is a mapping with any of `time`, `x`, `y`, `terms`, `readings`, `id`, `seq`; for a gateway also
        `source`. Many are published fastest as a `pyarrow.Table` or `RecordBatch` with such columns. Events without
        `seq` get sequence numbers reserved for this client, so that a retry cannot duplicate them. Do not mix them with
        numbers of your own for the same source.

        With `domain`, they are published at the peer of that domain; `x` and `y` are required then. The same event, by
        sequence number, published at several nodes counts once. The token is not sent there, only a proof made from it.
        """
        return await self._transport.run(self._calls.publish(events, domain))

    async def reserve_numbers(self, count: int, *, source: str | None = None) -> list[int]:
        """Reserve sequence numbers, in rising order, for events that may be published several times or at several
        nodes. A gateway names the `source`.
        """
        return await self._transport.run(self._calls.reserve_numbers(count, source))

    def demand(self) -> AsyncIterator[bool]:
        """Whether the source is demanded: the current value, then each change, until the client is closed.

        True while the node cannot be reached. For a gateway: whether any of its sources is.
        """
        return self._transport.listen(DemandStream(self._calls.delays))

    def source_demand(self) -> AsyncIterator[Mapping[str, bool]]:
        """Whether each source of this gateway is demanded, by id: first all, then those that changed or are new.

        All are while the node cannot be reached.
        """
        return self._transport.listen(SourceDemandStream(self._calls.delays))

    def on_demand(self, callback: Callable[[bool], None]) -> asyncio.Task[None]:
        """Pass each value of `demand` to `callback`, in the background, until the client is closed."""
        return self._transport.call_for_each(DemandStream(self._calls.delays), callback)

    def on_source_demand(self, callback: Callable[[Mapping[str, bool]], None]) -> asyncio.Task[None]:
        """Pass each value of `source_demand` to `callback`, in the background, until the client is closed."""
        return self._transport.call_for_each(SourceDemandStream(self._calls.delays), callback)

    async def subscribe(
        self,
        lacl: str | None = None,
        *,
        box: Sequence[float] | None = None,
        crosses_antimeridian: bool = False,
        terms: Iterable[str] = (),
        id: str | None = None,
        since: float | None = None,
    ) -> str:
        """Subscribe with a LACL text, or to events inside `box` that have all `terms`. Returns the subscription's id.

        A box is (min_x, min_y, max_x, max_y). If it crosses the antimeridian, min_x is greater than max_x and
        `crosses_antimeridian` must be set. The subscription applies to every event published after this returns. With
        `since` (seconds), it also gets what it would have received in that time before, from the archive of the node;
        not if it follows sources.
        """
        return await self._transport.run(self._calls.subscribe(lacl, box, crosses_antimeridian, terms, id, since))

    async def subscribe_many(
        self,
        subscriptions: Iterable[Mapping[str, Any]] | ArrowTable,
        *,
        all_or_none: bool = False,
        idempotency_key: str | None = None,
    ) -> list[SubscriptionResult]:
        """Add many subscriptions. Each is a mapping with the fields of the HTTP API: `lacl`, or `box` and `terms`;
        and `id`, which is random by default. Or they are the rows of a `pyarrow.Table` with these columns.

        Each is added or refused on its own; the results are in the same order. With `all_or_none`, nothing is added if
        one is refused; then there is a limit (10,000), and the error is raised.

        Otherwise there is a request for each 5,000. If one fails, an error is raised, and those before it are added. To
        be able to repeat the call, give the rows ids, or pass an `idempotency_key`: with it, the same subscriptions are
        added once.
        """
        return await self._transport.run(self._calls.subscribe_many(subscriptions, all_or_none, idempotency_key))

    async def replace(
        self,
        id: str,
        lacl: str | None = None,
        *,
        box: Sequence[float] | None = None,
        crosses_antimeridian: bool = False,
        terms: Iterable[str] = (),
    ) -> bool:
        """Give a subscription another query, as in `subscribe`, without a gap. False if it has this one already.

        Each event is matched with the old query or with the new one; those published after this returns, with the new.
        """
        return await self._transport.run(self._calls.replace(id, lacl, box, crosses_antimeridian, terms))

    async def unsubscribe_many(self, ids: Iterable[str]) -> list[SubscriptionResult]:
        """Remove many subscriptions. Results are in the same order; one that does not exist has a NotFoundError."""
        return await self._transport.run(self._calls.unsubscribe_many(ids))

    async def unsubscribe(self, id: str) -> None:
        """Remove a subscription. Letters that are in the mailbox stay there."""
        await self._transport.run(self._calls.unsubscribe(id))

    async def subscription(self, id: str) -> Subscription:
        """The current state of one subscription; of any subscriber with the operator token."""
        return await self._transport.run(self._calls.subscription(id))

    async def subscriptions(self) -> list[Subscription]:
        """All subscriptions of this subscriber, ordered by id; of all subscribers with the operator token.

        `why` is as of the beginning of the state; `subscription` returns the current reason.
        """
        return await self._transport.run(self._calls.subscriptions())

    async def bindings(self, id: str, *, limit: int = 100, skip: int = 0) -> list[Binding]:
        """The sources a subscription has been bound to, newest first, without the first `skip`."""
        return await self._transport.run(self._calls.bindings(id, limit, skip))

    async def explain_match(self, id: str, event: Mapping[str, Any]) -> dict[str, Any]:
        """Why an event does or would match a subscription: `matches`, and `checks` with `holds` and `why` each."""
        return await self._transport.run(self._calls.explain_match(id, event))

    async def close(self) -> None:
        """Acknowledge the letters that were processed, end all streams and close the connections."""
        await self._acknowledge_processed(once=True)
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
