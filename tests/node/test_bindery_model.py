"""Whatever is asked for, refused and restarted: registry, journal and binder say the same."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

from binderies import SECONDS, World
from binding import places
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from roamcast.bind.core import Binder
from roamcast.bind.messages import Subscribed
from roamcast.errors import RoamcastError
from roamcast.model import Position
from roamcast.node.following import registered
from roamcast.space import PLANAR

SOURCES = ("a", "b", "c")
SUBSCRIBERS = ("ann", "bob")
ROOMS = {"stage": (0, 0, 10, 10)}
TEXTS = (
    "Select Where &location in nearest",
    "Select Where &location in nearest(2) and &context = noise",
    "Select nearof() Where &location in rang:loc(5)",
    "Select Where &location in nearest Life-control #location in stage",
    'Select all() Where &terms has ("fire")',
    'Select all() Where &terms has ("fire") Life-control #location in stage and #role = guard',
)
coordinates = st.integers(-5, 15)


class Life(RuleBasedStateMachine):
    """Requests may be refused for good reasons or because of the disk; then they are simply over."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.world = World(Path(self.folder.name), places(**ROOMS))

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

    @rule(ids=st.lists(st.sampled_from(SOURCES + SUBSCRIBERS), min_size=1), data=st.data())
    def move(self, ids: list[str], data: st.DataObject) -> None:
        futures = []
        for id in ids:
            x, y = data.draw(coordinates), data.draw(coordinates)
            futures.append(self.world.bindery.move([Position(id, x, y, self.world.clock.now())]))
        self.attempt(*futures)

    @rule(id=st.sampled_from(SOURCES + SUBSCRIBERS), name=st.sampled_from(["context", "role"]), on=st.booleans())
    def change(self, id: str, name: str, on: bool) -> None:
        value = {"context": "noise", "role": "guard"}[name]
        self.attempt(self.world.bindery.change(id, {name: value} if on else {}))

    @rule(id=st.sampled_from("pqr"), subscriber=st.sampled_from(SUBSCRIBERS), text=st.sampled_from(TEXTS))
    def subscribe(self, id: str, subscriber: str, text: str) -> None:
        self.attempt(self.world.asking(id, subscriber, text))

    @rule(id=st.sampled_from("pqr"), subscriber=st.sampled_from(SUBSCRIBERS))
    def unsubscribe(self, id: str, subscriber: str) -> None:
        self.attempt(self.world.bindery.unsubscribe(id, subscriber))

    @rule(id=st.sampled_from(SOURCES + SUBSCRIBERS))
    def leave(self, id: str) -> None:
        self.attempt(self.world.bindery.leave(id))

    @rule()
    def fill_the_disk_of_the_registry(self) -> None:
        self.world.registry.refusals = 1

    @rule()
    def fill_the_disk_of_the_journal(self) -> None:
        self.world.journal.refusals = 1

    @rule()
    def restart(self) -> None:
        self.world.registry.refusals = self.world.journal.refusals = 0
        self.world.restart()

    @invariant()
    def all_say_the_same(self) -> None:
        registry = self.world.registry
        registry_refusals, journal_refusals = registry.refusals, self.world.journal.refusals
        registry.refusals = self.world.journal.refusals = 0
        standing = {s.id: s for s in registry.standing()}
        statuses = self.world.bindery.ask(lambda following: [following.status(id) for id in standing]).result(SECONDS)
        bound, told = replayed(self.world)
        stored = {(b.subscription, b.source) for b in registry.live_bindings()}
        assert bound == stored == {(s.id, source) for s in statuses for source in s.sources}
        assert told == {s.id for s in registry.subscriptions() if s.is_told}
        states = {id: s.standing.state for id, s in standing.items() if s.standing}
        assert {s.id: s.state.value for s in statuses} == states
        assert {(s.id, source) for s in fresh(self.world) for source in s.sources} == stored
        assert {e.id: e for e in self.world.bindery.directory} == {e.id: e for e in registry.entities()}
        registry.refusals, self.world.journal.refusals = registry_refusals, journal_refusals


def replayed(world: World) -> tuple[set[tuple[str, str]], set[str]]:
    """What the journal says is bound, and which subscriptions run."""
    bound: set[tuple[str, str]] = set()
    told: set[str] = set()
    for kind, entity, id in world.told():
        match kind:
            case "binding" | "initial":
                bound.add((id, entity))
            case "unbinding":
                bound.discard((id, entity))
            case "subscription":
                told.add(id)
            case "removal":
                told.discard(id)
    return bound, told


def fresh(world: World) -> Any:
    """The statuses by a binder that is told only what is so now."""
    binder = Binder(PLANAR, world.places)
    messages = [registered(entity) for entity in world.registry.entities()]
    wanted = [Subscribed(s.id, s.subscriber, world.queries.stored(s).query) for s in world.registry.standing()]
    binder.restore([*messages, *wanted], [], [], 1)
    return binder.statuses()


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
