"""A node's post office with all that belongs to it: the office itself, its counter, and the way to other offices."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool

from roamcast.deliver.addressing import home_of
from roamcast.deliver.mailbox import LetterKey, key_of
from roamcast.deliver.messages import (
    AddressUpdate,
    BundleReceipt,
    LetterBundle,
    MailboxChunk,
    MailboxClaim,
    PeerMessage,
    Transmit,
)
from roamcast.deliver.office import Office
from roamcast.deliver.port import RECALL, LastKnownOffice, OfficeStore
from roamcast.deliver.requests import (
    ArrivalRefused,
    Arrive,
    Arrived,
    Departed,
    LettersExpired,
    LettersReady,
    Notice,
    TraceReply,
)
from roamcast.errors import NotFoundError, RoamcastError, UnavailableError
from roamcast.node.clock import Clock
from roamcast.node.control.entity_cache import EntityCache
from roamcast.node.office.actor import OfficeActor
from roamcast.node.office.arrivals import Arrivals
from roamcast.node.office.mailbox_service import MailboxService
from roamcast.node.office.names import SubscriberNames
from roamcast.node.office.visitors import Visitors
from roamcast.node.peers.membership import Membership
from roamcast.node.peers.peer_file import Invitation, Peers
from roamcast.node.peers.sender import PeerSender
from roamcast.node.peers.signed_http import SignedHttp, http_client
from roamcast.node.waiting import Waiters
from roamcast.ranges import HIGHEST
from roamcast.security.signing import mac, new_key, same
from roamcast.settings import NodeSettings
from roamcast.store.registry.visitors import SqlVisitors

__all__ = ["PostOffice"]

log = logging.getLogger(__name__)

_JOIN_AGAIN = 1.0  # seconds


class PostOffice:
    """`handing` has, for each mailbox that is being handed over, the office it goes to; `claiming`, for each that is
    claimed, the offices that were asked for it.
    """

    def __init__(
        self,
        settings: NodeSettings,
        url: str,
        engine: Engine,
        store: OfficeStore,
        peers: Path,
        clock: Clock,
        waiters: Waiters,
    ) -> None:
        """Opening it blocks. `store` is the office's own; `peers` is the file of the offices it knows."""
        self._settings = settings
        self.url = settings.public_url or url
        self.names = SubscriberNames(settings.domain)
        self.waiters = waiters
        self.peers = Peers(peers)
        self.visitors = Visitors(SqlVisitors(engine))
        self.actor = OfficeActor(Office(settings.domain, store), store, clock.now)
        self.mailboxes = MailboxService(self.actor, self.names, waiters, settings.limits)
        self.handing: dict[str, str] = {}
        self.claiming: dict[str, set[str]] = {}
        self._key = new_key()  # of stamps; what was posted before a start is posted again after it
        self._http = http_client(settings.ca)
        self.signed_http = SignedHttp(settings.domain, self.url, self.peers, self._http, settings.limits.answer)
        self.membership = Membership(self.signed_http, self.peers, self._http, clock)
        self.sender = PeerSender(self.signed_http, self.peers, self.actor.hurry)
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep()

    def attend(self, entities: EntityCache) -> None:
        """Those who are registered here are known from now on."""
        self.arrivals = Arrivals(self.names, entities, self.visitors, self.actor, self.signed_http, self.peers)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Talk to other offices for as long as this is entered. Raises what keeps the node from joining."""
        loop = asyncio.get_running_loop()
        self.actor.connect(lambda leaving: _call_soon(loop, self._hear, leaving))
        try:
            self.sender.start()
            self._start(self.membership.introduce())
            if self._settings.join is not None:
                await self._join(self._settings.join.rstrip("/"), self._settings.invitation or "")
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self.sender.stop()
            await self._http.aclose()

    async def call_home(self, id: str) -> None:
        """The subscriber has another token: those for its mailbox are worth nothing, wherever that is."""
        name = self.names.of(id)
        await run_in_threadpool(self.visitors.leave, name, HIGHEST)
        with suppress(NotFoundError):
            await asyncio.wrap_future(self.actor.tell(Arrive(name, move_proof=RECALL)))

    def close(self) -> None:
        self.actor.close()

    def _hear(self, leaving: Sequence[Transmit | Notice]) -> None:
        for effect in leaving:
            match effect:
                case Transmit(to, message):
                    self.sender.send(to, self._leaving(to, message))
                case LettersReady(name):
                    self.waiters.notify([name])
                case Departed(name):
                    self.waiters.notify([name])
                    self._start(self.arrivals.departed(effect))
                case Arrived(name):
                    self.handing.pop(name, None)
                    self.claiming.pop(name, None)
                    self.arrivals.hear(effect)
                case ArrivalRefused(name):
                    self.claiming.pop(name, None)
                    self.arrivals.hear(effect)
                case LettersExpired(_, count):
                    self.mailboxes.expired += count
                case TraceReply():
                    self.mailboxes.traced(effect)

    def _leaving(self, to: str, message: PeerMessage) -> PeerMessage:
        """Note who is asked for a mailbox, or gets it; add, for a home, what the subscriber has warranted.

        Letters of our own are stamped.
        """
        match message:
            case LetterBundle(receiver, letters, origin) if origin == self.names.domain:
                return replace(message, stamp=self._stamp(receiver, map(key_of, letters)))
            case MailboxChunk(name):
                self.handing[name] = to
            case MailboxClaim(name):
                self.claiming.setdefault(name, set()).add(to)
            case AddressUpdate(name, epoch=epoch) if home_of(name) == to:
                visitor = self.visitors.find(name)
                if visitor is not None and visitor.epoch == epoch:
                    return replace(message, move_proof=visitor.move_proof)
        return message

    def is_stamped(self, posted: BundleReceipt) -> bool:
        """Whether who says so was sent just these letters, or was passed them, since we have started."""
        return same(posted.stamp, self._stamp(posted.receiver, (*posted.accepted, *posted.rejected)))

    def _stamp(self, receiver: str, keys: Iterable[LetterKey]) -> str:
        parts = (part for sender, number in sorted(keys) for part in (sender, str(number)))
        return mac(self._key, "stamp", receiver, *parts).hex()

    def _sweep(self) -> None:
        """Forget visitors whose arrival came to nothing, or who have left, if a crash kept us from it."""

        def absent(store: OfficeStore) -> list[tuple[str, LastKnownOffice | None]]:
            names = self.visitors.names()
            served = {name for name, tenure in store.tenures(names).items() if tenure.active}
            gone = [name for name in names if name not in served and store.pending_claim(name) is None]
            return [(name, store.last_known(name)) for name in gone]

        for name, kept in self.actor.query(absent).result():
            visitor = self.visitors.find(name)
            if kept is not None and not kept.is_removed:
                self.visitors.leave(name, kept.epoch, kept.office)
            if visitor is not None:
                self.visitors.forget(name, visitor.epoch)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, url: str, code: str) -> None:
        """Once: who has joined is known for good. Raises why the other node refuses; tries later if it is away."""
        if any(peer.invitation == Invitation.read(code)[0] for peer in self.peers.all()):
            return
        try:
            await self._join_now(url, code)
        except UnavailableError as error:
            log.warning("%s; going on trying", error)
            self._start(self._join_later(url, code))

    async def _join_now(self, url: str, code: str) -> None:
        peer = await self.membership.join(url, code)
        log.info("joined office %s at %s", peer.domain, url)
        self.sender.heard_of(peer.domain)

    async def _join_later(self, url: str, code: str) -> None:
        while True:
            await asyncio.sleep(_JOIN_AGAIN)
            try:
                return await self._join_now(url, code)
            except UnavailableError:
                continue
            except RoamcastError as error:
                log.error("not joined: %s", error)
                return None


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: object) -> None:
    with suppress(RuntimeError):  # the node is stopping
        loop.call_soon_threadsafe(call, *arguments)
