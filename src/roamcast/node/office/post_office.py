"""The post office of a node: the office itself, its mailboxes, and the way to other offices."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool

from roamcast.deliver.addressing import SubscriberNames
from roamcast.deliver.messages import Transmit
from roamcast.deliver.office import Office
from roamcast.deliver.port import LastKnownOffice, OfficeStore
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
from roamcast.node.office.admission import Admission
from roamcast.node.office.arrivals import Arrivals
from roamcast.node.office.mailbox_service import MailboxService
from roamcast.node.office.visitors import Visitors
from roamcast.node.peers.membership import Membership
from roamcast.node.peers.peer_file import Invitation, Peers
from roamcast.node.peers.sender import PeerSender
from roamcast.node.peers.signed_http import SignedHttp, http_client
from roamcast.node.waiting import Waiters
from roamcast.ranges import HIGHEST
from roamcast.settings_model import NodeSettings
from roamcast.store.registry.visitors import SqlVisitors

__all__ = ["PostOffice"]

log = logging.getLogger(__name__)

_JOIN_RETRY = 1.0  # seconds


class PostOffice:
    """Composes the parts of a post office, and dispatches the office's effects to them."""

    def __init__(
        self,
        settings: NodeSettings,
        url: str,
        engine: Engine,
        store: OfficeStore,
        peers: Path,
        entities: EntityCache,
        clock: Clock,
        waiters: Waiters,
    ) -> None:
        """Open the office, which blocks. `engine` has the visitors, `store` the mailboxes; `peers` is the peer file."""
        self._settings = settings
        self.url = settings.public_url or url
        self.names = SubscriberNames(settings.domain)
        self.waiters = waiters
        self.peers = Peers(peers)
        self.visitors = Visitors(SqlVisitors(engine))
        self.actor = OfficeActor(Office(settings.domain, store), store, clock.now)
        self.mailboxes = MailboxService(self.actor, self.names, waiters, settings.limits)
        self._http = http_client(settings.ca)
        self.signed_http = SignedHttp(settings.domain, self.url, self.peers, self._http, settings.limits.peer_response)
        self.membership = Membership(self.signed_http, self.peers, self._http, clock)
        self.sender = PeerSender(self.signed_http, self.peers, self.actor.hurry)
        self.admission = Admission(self.names, entities, self.visitors, self.actor, self.signed_http, self.peers)
        self.arrivals = Arrivals(settings.domain, self.admission, self.visitors, self.actor)
        self._tasks: set[asyncio.Task[None]] = set()
        self._forget_absent_visitors()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Talk to other offices while this is entered. Raises what keeps the node from joining."""
        loop = asyncio.get_running_loop()
        self.actor.connect(lambda effects: _call_soon(loop, self._dispatch, effects))
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

    async def recall(self, id: str) -> None:
        """The subscriber has a new token: recall its mailbox, and invalidate the tokens for it everywhere."""
        name = self.names.of(id)
        await run_in_threadpool(self.visitors.leave, name, HIGHEST)
        with suppress(NotFoundError):
            await asyncio.wrap_future(self.actor.tell(Arrive(name, is_recall=True)))

    def close(self) -> None:
        self.actor.close()

    def _dispatch(self, effects: Sequence[Transmit | Notice]) -> None:
        for effect in effects:
            match effect:
                case Transmit(to, message):
                    self.sender.send(to, self.admission.prepare_to_send(to, message))
                case LettersReady(names):
                    self.waiters.notify(names)
                case Departed(name):
                    self.waiters.notify([name])
                    self._start(self.arrivals.depart(effect))
                case Arrived(name):
                    self.admission.note_arrived(name)
                    self.arrivals.resolve(effect)
                case ArrivalRefused(name):
                    self.admission.note_refused(name)
                    self.arrivals.resolve(effect)
                case LettersExpired(_, count):
                    self.mailboxes.expired += count
                case TraceReply():
                    self.mailboxes.resolve_trace(effect)

    def _forget_absent_visitors(self) -> None:
        """Forget visitors whose arrival failed or who have left, if a crash prevented it."""

        def absent(store: OfficeStore) -> list[tuple[str, LastKnownOffice | None]]:
            names = self.visitors.names()
            served = {name for name, tenure in store.tenures(names).items() if tenure.active}
            gone = [name for name in names if name not in served and store.pending_claim(name) is None]
            return [(name, store.last_known(name)) for name in gone]

        for name, stored in self.actor.query(absent).result():
            visitor = self.visitors.find(name)
            if stored is not None and not stored.is_removed:
                self.visitors.leave(name, stored.epoch, stored.office)
            if visitor is not None:
                self.visitors.forget(name, visitor.epoch)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, url: str, code: str) -> None:
        """Join once; a later start finds the peer in the peer file. Raises the refusal; retries if the node is away."""
        if any(peer.invitation == Invitation.read(code)[0] for peer in self.peers.all()):
            return
        try:
            await self._join_now(url, code)
        except UnavailableError as error:
            log.warning("%s; retrying", error)
            self._start(self._join_later(url, code))

    async def _join_now(self, url: str, code: str) -> None:
        peer = await self.membership.join(url, code)
        log.info("joined office %s at %s", peer.domain, url)
        self.sender.reconnect(peer.domain)

    async def _join_later(self, url: str, code: str) -> None:
        while True:
            await asyncio.sleep(_JOIN_RETRY)
            try:
                return await self._join_now(url, code)
            except UnavailableError:
                continue
            except RoamcastError as error:
                log.error("cannot join: %s", error)
                return None


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: object) -> None:
    with suppress(RuntimeError):  # the node is stopping
        loop.call_soon_threadsafe(call, *arguments)
