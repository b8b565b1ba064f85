"""Clients of the nodes: sources that publish and move, subscribers that subscribe, move and unsubscribe."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

from roamcast.errors import ConflictError, ElsewhereError, NotFoundError, RoamcastError
from roamcast.journal.records import EVENT, Record
from roamcast.lab.torture.federation.host import QUERIES
from roamcast.lab.torture.federation.ledger import LedgerSubscription, Move, QuerySpec
from roamcast.model import Position
from roamcast.store.registry.values import Entity

if TYPE_CHECKING:
    from roamcast.lab.torture.federation.host import Host, Reply
    from roamcast.lab.torture.federation.simulation import FederationSimulation

__all__ = ["SIZE", "Call", "Client", "SourceClient", "SubscriberClient"]

SIZE: Final = 100.0
"""The plane is a square of this size."""

_TERMS: Final = ("fire", "flood", "frost")
_AGAIN: Final = 700_000
_ANSWER: Final = 600_000


class Call(Protocol):
    """A request to a node, which is repeated until it is answered."""

    def __call__(self, host: Host, reply: Reply) -> None: ...


class Client:
    """Does one thing after the other."""

    def __init__(self, id: str, domain: str, simulation: FederationSimulation, rng: Random) -> None:
        self.id = id
        self.domain = domain
        self.simulation = simulation
        self.rng = rng
        self._calls: deque[tuple[Call, Callable[[], None]]] = deque()
        self.attempt = 0

    @property
    def idle(self) -> bool:
        return not self._calls

    @property
    def backlog(self) -> int:
        return len(self._calls)

    def call(self, request: Call, done: Callable[[], None] = lambda: None) -> None:
        self._calls.append((request, done))
        if len(self._calls) == 1:
            self._send()

    def send(self, request: Call, answered: Reply) -> None:
        """Send a request once."""
        self.send_to(self.domain, request, answered)

    def send_to(self, domain: str, request: Call, answered: Reply) -> None:
        self.simulation.call(self.id, domain, request, answered, _ANSWER)

    def _send(self) -> None:
        attempt = self.attempt = self.simulation.ticket()

        def answered(answer: object) -> None:
            if attempt != self.attempt:
                return
            if isinstance(answer, RoamcastError) and not _is_done(answer):
                return  # again later
            self.attempt = 0
            _, done = self._calls.popleft()
            done()
            if self._calls:
                self._send()

        self.send(self._calls[0][0], answered)
        self.simulation.later(_AGAIN, lambda: self._send() if attempt == self.attempt else None)

    def register(self, kind: str, attributes: dict[str, str | float | bool], position: tuple[float, float]) -> None:
        def request(host: Host, reply: Reply) -> None:
            at = Position(self.id, *position, host.clock.now())
            entity = Entity(
                self.id, "source" if kind == "source" else "subscriber", f"hash of {self.id}", attributes, at
            )
            host.submit("source", partial(host.control.register, entity), reply, reply)

        self.call(request)

    def _move(self, position: tuple[float, float], done: Callable[[], None] = lambda: None) -> None:
        def request(host: Host, reply: Reply) -> None:
            at = Position(self.id, *position, host.clock.now())
            host.submit("move", partial(host.control.move, [at]), reply, reply)

        self.call(request, done)

    def _anywhere(self) -> tuple[float, float]:
        return round(self.rng.uniform(0, SIZE), 3), round(self.rng.uniform(0, SIZE), 3)


class SourceClient(Client):
    """Publishes events with dense numbers, each until it is acknowledged."""

    def __init__(self, id: str, domain: str, simulation: FederationSimulation, rng: Random) -> None:
        super().__init__(id, domain, simulation, rng)
        self.position = self._anywhere()
        self.context = rng.choice(("noise", "heat"))
        self.registered = True
        self.stays = True
        """It has never left."""
        self._seq = 0
        self.register("source", {"context": self.context}, self.position)

    def publish(self) -> None:
        self._seq += 1
        seq = self._seq
        terms = self.rng.sample(_TERMS, self.rng.randrange(1, 3))
        x, y = self._anywhere()

        def request(host: Host, reply: Reply) -> None:
            record = Record(EVENT, self.id, seq, f"{self.id}:{seq}", 0, x, y, terms, {"level": 1.0})
            host.publish(record, reply)

        self.call(request)

    def move(self) -> None:
        self.position = self._anywhere()
        self._move(self.position)

    def leave_or_return(self) -> None:
        self.registered = not self.registered
        self.stays = False
        if self.registered:
            self.register("source", {"context": self.context}, self.position)
            return
        self.call(lambda host, reply: host.submit("source", partial(host.control.remove, self.id), reply, reply))


class SubscriberClient(Client):
    """Has some subscriptions, and moves."""

    def __init__(self, id: str, domain: str, simulation: FederationSimulation, rng: Random) -> None:
        super().__init__(id, domain, simulation, rng)
        self._last_move = Move(self._anywhere(), simulation.now, simulation.now)
        self.subscriptions: list[LedgerSubscription] = []
        self.register("subscriber", {}, self.position)

    @property
    def position(self) -> tuple[float, float]:
        """Where it is, or wants to be."""
        return self._last_move.point

    def subscribe(self) -> None:
        spec = self._any_query()
        query = QUERIES.accept(spec.text)
        subscription = self.simulation.ledger.subscribe(self.id, self.domain, spec, self._last_move, query.body)
        self.subscriptions.append(subscription)

        def request(host: Host, reply: Reply) -> None:
            host.submit("subscribe", partial(host.control.subscribe, subscription.id, self.id, query), reply, reply)

        self.call(request, lambda: self.simulation.ledger.subscribed(subscription))

    def unsubscribe(self) -> None:
        if not self.subscriptions:
            return
        subscription = self.subscriptions.pop(self.rng.randrange(len(self.subscriptions)))

        def request(host: Host, reply: Reply) -> None:
            self.simulation.ledger.unsubscribing(subscription)
            host.submit("unsubscribe", partial(host.control.unsubscribe, subscription.id, self.id), reply, reply)

        self.simulation.ledger.unsubscribing(subscription)
        self.call(request)

    def move(self) -> None:
        """Often not far."""
        x, y = self.position
        near = min(SIZE, max(0.0, x + self.rng.uniform(-10, 10))), min(SIZE, max(0.0, y + self.rng.uniform(-10, 10)))
        position = near if self.rng.random() < 0.6 else self._anywhere()
        self._last_move = move = self.simulation.ledger.moving(self.id, position)
        self._move(position, lambda: self.simulation.ledger.moved(move))

    def _any_query(self) -> QuerySpec:
        rng = self.rng
        choice = rng.random()
        if choice < 0.3:
            return QuerySpec.of_terms(rng.choice(_TERMS))
        if choice < 0.45:
            (x1, y1), (x2, y2) = self._anywhere(), self._anywhere()
            return QuerySpec.of_box(min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2))
        if choice < 0.6:
            return QuerySpec.around(rng.choice((20.0, 40.0, 80.0)))
        if choice < 0.9:
            return QuerySpec.nearest(rng.choice(("noise", "heat")))
        return QuerySpec.any_within(rng.choice(("noise", "heat")), 50.0)


def _is_done(error: RoamcastError) -> bool:
    """Whether an earlier attempt has done it."""
    return isinstance(error, ConflictError | NotFoundError) and not isinstance(error, ElsewhereError)
