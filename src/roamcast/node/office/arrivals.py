"""Arrivals: subscribers get their mailbox here, and the token that opens it."""

from __future__ import annotations

import asyncio
import logging

from starlette.concurrency import run_in_threadpool

from roamcast.deliver.addressing import check_name, stale_arrival_error
from roamcast.deliver.requests import ArrivalRefused, Arrive, Arrived, Departed
from roamcast.errors import ElsewhereError, RoamcastError, UnavailableError
from roamcast.node.office.actor import OfficeActor
from roamcast.node.office.admission import Admission
from roamcast.node.office.visitors import Visitors
from roamcast.security.move_proofs import MoveProof

__all__ = ["Arrivals"]

log = logging.getLogger(__name__)

_WAIT = 5.0  # seconds


class Arrivals:
    """Handles arrivals and departures of visitors. Belongs to one event loop."""

    def __init__(self, domain: str, admission: Admission, visitors: Visitors, actor: OfficeActor) -> None:
        self._domain = domain
        self._admission = admission
        self._visitors = visitors
        self._actor = actor
        self._waiting: dict[str, set[asyncio.Future[Arrived | ArrivalRefused]]] = {}

    async def arrive(self, name: str, epoch: int, previous: str | None, move_proof: str, secret: str) -> str:
        """Fetch the subscriber's mailbox; returns the token that opens it. Repeat it after UnavailableError.

        Raises PermissionDeniedError for an invalid move proof, and ElsewhereError if the subscriber has arrived
        somewhere in this epoch or a later one.
        """
        check_name(name)
        move_proof = str(MoveProof.parse(move_proof))
        before = self._visitors.find(name)
        await self._admission.check_arrival(name, epoch, move_proof, previous)
        known_epoch = await run_in_threadpool(self._visitors.record_arrival, name, epoch, move_proof, secret, before)
        if known_epoch:
            raise stale_arrival_error(name, self._domain, known_epoch)
        try:
            outcome = await self._fetch_mailbox(Arrive(name, epoch, previous, move_proof))
        except ElsewhereError:
            await self._forget(name, epoch)
            raise
        if isinstance(outcome, ArrivalRefused) or outcome.epoch > epoch:
            await self._forget(name, epoch)
            office = outcome.office if isinstance(outcome, ArrivalRefused) else self._domain
            raise stale_arrival_error(name, office, outcome.epoch)
        token = await run_in_threadpool(self._visitors.issue_token, name, epoch)
        if token is None:
            raise stale_arrival_error(name, self._domain, epoch)
        return token

    def resolve(self, outcome: Arrived | ArrivalRefused) -> None:
        """An arrival has succeeded or failed: resume those who wait for it."""
        for waiting in self._waiting.get(outcome.name, ()):
            if not waiting.done():
                waiting.set_result(outcome)

    async def depart(self, departed: Departed) -> None:
        """Invalidate the token of a visitor whose mailbox was granted to another office."""
        try:
            await run_in_threadpool(self._visitors.leave, departed.name, departed.epoch, departed.office)
        except RoamcastError as error:
            log.error("%s has left, but its token is still valid: %s", departed.name, error)

    async def _fetch_mailbox(self, message: Arrive) -> Arrived | ArrivalRefused:
        """Raises what the office refuses, and UnavailableError while the outcome is open."""
        name = message.name
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Arrived | ArrivalRefused] = loop.create_future()
        self._waiting.setdefault(name, set()).add(outcome)
        try:
            await asyncio.wrap_future(self._actor.tell(message))
            async with asyncio.timeout(_WAIT):
                return await outcome
        except TimeoutError:
            raise UnavailableError(
                "the mailbox has not arrived yet", where=name, hint="arrive again with the same epoch"
            ) from None
        finally:
            self._waiting[name].discard(outcome)
            if not self._waiting[name]:
                del self._waiting[name]

    async def _forget(self, name: str, epoch: int) -> None:
        """Forget a failed arrival, unless the visitor has a token: a late arrival does not end it."""
        visitor = self._visitors.find(name)
        if visitor is not None and visitor.token_hash is None:
            await run_in_threadpool(self._visitors.forget, name, epoch)
