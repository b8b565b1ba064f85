"""Registry, journal and binder agree after any sequence of requests, failures, restarts and crashes."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

from binding import places
from control_writers import SECONDS, World
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from nodes import until
from profiles import brief

from roamcast.bind.lcesm.binder import Binder
from roamcast.bind.lcesm.messages import Subscribed
from roamcast.bind.lcesm.views import SubscriptionStatus
from roamcast.errors import RoamcastError
from roamcast.journal.bodies import BindingBody, SubscriptionBody
from roamcast.journal.records import Record
from roamcast.model import Position
from roamcast.node.callers import Caller
from roamcast.node.control.binder_adapter import registration
from roamcast.space import PLANAR
from roamcast.store.registry.values import Entity

SOURCES = ("a", "b", "c")
SUBSCRIBERS = ("ann", "bob")
GATEWAY = "g"
ROOMS = {"stage": (0, 0, 10, 10)}
TEXTS = (
    "Select Where &location in nearest",
    "Select Where &location in nearest(2) and &context = noise",
    "Select nearof() Where &location in rang:loc(5)",
    "Select Where &location in nearest Life-control #location in stage",
    'Select all() Where &terms has ("fire")',
    'Select all() Where &terms has ("fire") Life-control #location in stage and #role = guard',
    "Select all() Where &location in rang:loc(5)",
    "Select all() Where &location in rang:loc(5) Life-control #location in stage and #role = guard",
)
coordinates = st.integers(-5, 15)


class ControlWriterMachine(RuleBasedStateMachine):
    """Requests may be refused, for good reasons or because of a disk; they are dropped then."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.world = World(Path(self.folder.name), places(**ROOMS))
        self.world.source("a", (0, 0), context="noise")
        self.world.source("b", (10, 0))
        for id, x in (("ann", 1), ("bob", 9)):
            self.world.subscriber(id, (x, 0), role="guard")
        self.world.subscribe("p", "ann", TEXTS[0])

    def teardown(self) -> None:
        self.world.stop()
        self.folder.cleanup()

    def attempt(self, *futures: Any) -> None:
        for future in futures:
            error = future.exception(SECONDS)
            assert error is None or isinstance(error, RoamcastError)

    @rule(id=st.sampled_from(SOURCES), at=st.none() | st.tuples(coordinates, coordinates), noisy=st.booleans())
    def register_source(self, id: str, at: tuple[int, int] | None, noisy: bool) -> None:
        self.register(id, "source", at, {"context": "noise"} if noisy else {})

    @rule(id=st.sampled_from(SUBSCRIBERS), at=st.none() | st.tuples(coordinates, coordinates))
    def register_subscriber(self, id: str, at: tuple[int, int] | None) -> None:
        self.register(id, "subscriber", at, {"role": "guard"})

    def register(self, id: str, kind: Any, at: tuple[int, int] | None, attributes: dict[str, str]) -> None:
        with contextlib.suppress(RoamcastError):
            self.world.register(id, kind, at, **attributes)

    @rule(ids=st.lists(st.sampled_from(SOURCES), min_size=1), at=st.tuples(coordinates, coordinates))
    def register_sources_of_a_gateway(self, ids: list[str], at: tuple[int, int]) -> None:
        self.register(GATEWAY, "gateway", None, {})
        now = self.world.clock.now()
        sources = [Entity(id, "source", None, {"context": "noise"}, Position(id, *at, now), GATEWAY) for id in ids]
        self.attempt(self.world.gateways.register_sources(Caller(GATEWAY, "gateway"), sources))

    @rule(ids=st.lists(st.sampled_from(SOURCES)))
    def remove_sources_of_a_gateway(self, ids: list[str]) -> None:
        """And the gateway, if it has no others."""
        self.attempt(
            self.world.gateways.remove_sources(Caller(GATEWAY, "gateway"), ids), self.world.control.remove(GATEWAY)
        )

    @rule(ids=st.lists(st.sampled_from(SOURCES + SUBSCRIBERS), min_size=1), data=st.data())
    def move(self, ids: list[str], data: st.DataObject) -> None:
        futures = []
        for id in ids:
            x, y = data.draw(coordinates), data.draw(coordinates)
            futures.append(self.world.control.move([Position(id, x, y, self.world.clock.now())]))
        self.attempt(*futures)

    @rule(id=st.sampled_from(SOURCES + SUBSCRIBERS), late=st.integers(1, 10), x=coordinates)
    def move_too_late(self, id: str, late: int, x: int) -> None:
        """A position that is older than what is known is counted, and changes nothing."""
        known = self.world.control.entities.find(id)
        if known is None or known.position is None:
            return
        future = self.world.control.move([Position(id, x, 0, known.position.time - late)])
        self.attempt(future)
        assert future.exception() is not None or future.result() == 1
        assert self.world.control.entities.find(id) == known

    @rule(id=st.sampled_from(SOURCES + SUBSCRIBERS), name=st.sampled_from(["context", "role"]), on=st.booleans())
    def change(self, id: str, name: str, on: bool) -> None:
        value = {"context": "noise", "role": "guard"}[name]
        self.attempt(self.world.control.set_attributes(id, {name: value} if on else {}))

    @rule(id=st.sampled_from("pqr"), subscriber=st.sampled_from(SUBSCRIBERS), text=st.sampled_from(TEXTS))
    def subscribe(self, id: str, subscriber: str, text: str) -> None:
        self.attempt(self.world.submit_subscription(id, subscriber, text))

    @rule(id=st.sampled_from("pqr"), subscriber=st.sampled_from(SUBSCRIBERS))
    def unsubscribe(self, id: str, subscriber: str) -> None:
        self.attempt(self.world.control.unsubscribe(id, subscriber))

    @rule(id=st.sampled_from(SOURCES + SUBSCRIBERS))
    def leave(self, id: str) -> None:
        self.attempt(self.world.control.remove(id))

    @rule()
    def fill_the_disk_of_the_registry(self) -> None:
        self.world.registry.refusals = 1

    @rule()
    def fill_the_disk_of_the_journal(self) -> None:
        self.world.journal.refusals = 1

    @rule(pipeline=st.sampled_from(["one", "two"]))
    def tell(self, pipeline: str) -> None:
        self.attempt(self.world.control.inform_pipeline(pipeline))

    @rule()
    def restart(self) -> None:
        self.world.registry.refusals = self.world.journal.refusals = 0
        self.world.restart()

    @rule(transactions=st.integers(1, 4))
    def crash(self, transactions: int) -> None:
        """The records of the last transactions are in the journal, and the registry has not learnt of it."""
        registry = self.world.registry
        registry.refusals = self.world.journal.refusals = 0
        self.world.stop()
        kept = [[change for change in group if isinstance(change, Record)] for group in registry.transactions]
        tickets = dict(enumerate((record for group in kept for record in group), start=1))
        known = len(tickets) - sum(map(len, kept[-transactions:]))
        waiting = {ticket: record for ticket, record in tickets.items() if ticket > known}
        registry._tables.control_outbox = dict(sorted((waiting | registry._tables.control_outbox).items()))
        self.world.start()

    @invariant()
    def all_say_the_same(self) -> None:
        registry = self.world.registry
        registry_refusals, journal_refusals = registry.refusals, self.world.journal.refusals
        registry.refusals = self.world.journal.refusals = 0
        lifecycle = {s.id: s for s in registry.subscriptions_with_lifecycle()}
        statuses = statuses_of(self.world, list(lifecycle))
        bound, running = replayed(self.world)
        stored = {(b.subscription, b.source) for b in registry.live_bindings()}
        assert bound == stored == {(s.id, source) for s in statuses for source in s.sources}
        assert running == {s.id for s in registry.subscriptions() if s.in_pipeline}
        states = {id: s.lifecycle.state for id, s in lifecycle.items() if s.lifecycle}
        assert {s.id: s.state.value for s in statuses} == states
        where = {e.id: e.position and (e.position.x, e.position.y) for e in registry.entities()}
        assert moving_regions(self.world) == {
            s.id: where[s.subscriber] for s in registry.subscriptions_with_moving_region() if s.in_pipeline
        }
        assert {(s.id, source) for s in recomputed(self.world) for source in s.sources} == stored
        assert {e.id: e for e in self.world.control.entities} == {e.id: e for e in registry.entities()}
        owned = [e.id for e in registry.entities() if e.gateway == GATEWAY]
        assert sorted(self.world.control.entities.sources_of(GATEWAY)) == owned
        assert not owned or registry.entity(GATEWAY)
        registry.refusals, self.world.journal.refusals = registry_refusals, journal_refusals


def statuses_of(world: World, ids: list[str]) -> list[SubscriptionStatus]:
    """The statuses, when everything is journalled. After failures, a rebuild may take a little longer."""

    def is_well() -> bool:
        return world.control.move([]).exception(SECONDS) is None

    until(is_well, "the disks to be tried again")
    return world.control.query(lambda adapter: [adapter.status(id) for id in ids]).result(SECONDS)


def replayed(world: World) -> tuple[set[tuple[str, str]], set[str]]:
    """What the journal says is bound, and which subscriptions run. The first bindings in a life are marked as such.

    A life ends with a removal. Records may be repeated: after a crash, and for a new pipeline.
    """
    bound: set[tuple[str, str]] = set()
    running: set[str] = set()
    seen: set[tuple[Any, ...]] = set()
    began: dict[str, Any] = {}
    for row in world.journalled():
        kind, entity, id, time = fact = row["kind"], row["entity"], row["id"], row["time"]
        is_new = fact not in seen
        seen.add(fact)
        match kind:
            case "binding":
                bound.add((id, entity))
                if is_new:
                    is_first = began.setdefault(id, time) == time
                    assert BindingBody.from_json(row["body"]).initial == is_first
            case "unbinding":
                bound.discard((id, entity))
            case "subscription":
                running.add(id)
            case "removal":
                running.discard(id)
                assert all(of != id for of, _ in bound) or not is_new
                bound = {(of, source) for of, source in bound if of != id}
                if is_new:
                    began.pop(id, None)
    return bound, running


def moving_regions(world: World) -> dict[str, tuple[float, float] | None]:
    """The positions of moving regions by the journal."""
    where: dict[str, tuple[float, float] | None] = {}
    whose: dict[str, str] = {}
    for row in world.journalled():
        match row["kind"]:
            case "subscription" if SubscriptionBody.from_json(row["body"]).moving_radius is not None:
                whose[row["id"]] = row["entity"]
                where.setdefault(row["id"], None)
            case "removal":
                where.pop(row["id"], None)
            case "position":
                where |= {id: (row["x"], row["y"]) for id in where if whose[id] == row["entity"]}
    return where


def recomputed(world: World) -> Any:
    """The statuses by a new binder that gets only the current state."""
    binder = Binder(PLANAR, world.places)
    messages = [message for entity in world.registry.entities() if (message := registration(entity)) is not None]
    wanted = [
        Subscribed(s.id, s.subscriber, world.queries.stored(s).query)
        for s in world.registry.subscriptions_with_lifecycle()
    ]
    binder.restore([*messages, *wanted], [], [], 1)
    return binder.statuses()


TestControlWriter = ControlWriterMachine.TestCase
TestControlWriter.settings = brief()
