"""Compares states and bindings with a simple model after any sequence of messages."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest
from binding import Thing, World
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from profiles import thorough
from shapely.geometry import box

from roamcast.bind.lcesm.binder import Binder
from roamcast.bind.lcesm.messages import (
    Bound,
    Effect,
    EntityMoved,
    MatchStarted,
    MatchStopped,
    Message,
    PositionForgotten,
    SourceChanged,
    SourceDemanded,
    SourceIdle,
    SourceMessage,
    SourceRegistered,
    SourceRemoved,
    StateChanged,
    Subscribed,
    SubscriberChanged,
    SubscriberRegistered,
    SubscriberRemoved,
    SubscriptionState,
    Unbound,
    Unsubscribed,
)
from roamcast.errors import NotFoundError
from roamcast.lacl import check, parse, plan_of
from roamcast.model import Position
from roamcast.places import Places
from roamcast.space import GEOGRAPHIC, PLANAR, Space

SOURCES = ("b", "a", "d", "c", "f", "e")
SUBSCRIBERS = ("ann", "bob", "eve")
SUBSCRIPTIONS = tuple(f"p{number}" for number in range(6))
ROOMS: Sequence[dict[str, tuple[float, float, float, float]]] = (
    {"room A": (0, 0, 2, 2), "hall": (2, 0, 5, 4)},
    {"room A": (1, 1, 4, 4), "hall": (0, 0, 1, 5)},
    {"hall": (0, 0, 2, 5)},
)
SELECTS = (
    "Select Where {}&location in nearest",
    "Select Where {}&location in nearest(2)",
    "Select Where {}&location in nearest(3)",
    "Select nearof() Where {}&location in rang:loc({r})",
    "Select remoteof() Where {}&location in rang:loc({r})",
    "Select anyof() Where {}&location in rang:loc({r})",
    "Select anyof() Where {}&location in rang:loc({r})",
    'Select all() Where {}&terms has ("fire")',
)
EXPRESSIONS = ("", "&context = light and ", "&context in (noise, light) and ", "not &floor = 1 and ")
LIVES = (
    "",
    "",
    "Life-control #location in room A",
    "Life-control #location not in hall",
    "Life-control #role = guard",
    "Life-control #role = guard or #location in box(0, 0, 1, 3)",
    "Life-control #location in circle({x}, {x}, {r}) and not #role = cook",
)
ACTIONS = ("remove", "forget", "change", "move")

coordinates = st.integers(0, 5)
attributes = st.fixed_dictionaries(
    {},
    optional={
        "context": st.sampled_from(["light", "noise"]),
        "floor": st.sampled_from([1, 2, True]),
        "role": st.sampled_from(["guard", "cook"]),
    },
)
points = st.tuples(coordinates, coordinates)
positions = st.integers(0, 5).flatmap(lambda chance: points if chance else st.none())
templates = st.tuples(
    st.sampled_from(SELECTS), st.sampled_from(EXPRESSIONS), st.sampled_from(LIVES), coordinates, st.integers(0, 4)
)


class BindingModel(RuleBasedStateMachine):
    space: Space = PLANAR
    metres = 1.0  # of one step of the coordinates

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.world = World(self.space, dict(ROOMS[0]))
        self.binder = Binder(self.space, self.places())
        self.bound: dict[str, dict[str, int]] = {}
        self.reported: dict[str, StateChanged] = {}
        self.states: dict[str, SubscriptionState] = {}
        self.active: set[str] = set()
        self.demanded: set[str] = set()

    def places(self) -> Places:
        return Places({name: box(*sides) for name, sides in self.world.rooms.items()}, self.space)

    # Messages

    def send(self, message: Message) -> None:
        """Send a message that the model has applied already."""
        self.now += 1
        self.apply(self.binder.handle(message, self.now))

    def apply(self, effects: Sequence[Effect]) -> None:
        """Replay the effects, and check each choice by anyof()."""
        before = {id: set(sources) for id, sources in self.bound.items()}
        pairs = [(effect.subscription, effect.source) for effect in effects if isinstance(effect, Bound | Unbound)]
        assert len(pairs) == len(set(pairs)), "a change is undone"
        for effect in effects:
            assert effect.at == self.now
            match effect:
                case Bound(id, source):
                    assert source not in self.bound.setdefault(id, {})
                    self.check_choice(id, source, before.get(id, set()))
                    self.bound[id][source] = effect.at
                case Unbound(id, source):
                    del self.bound[id][source]
                case StateChanged(id, state):
                    assert id not in self.reported or self.reported[id].state != state
                    assert (effect.why is None) == (state is SubscriptionState.ACTIVE)
                    self.reported[id] = effect
                case MatchStarted(id):
                    assert id not in self.active
                    self.active.add(id)
                case MatchStopped(id):
                    self.active.remove(id)
                case SourceDemanded(source):
                    assert source not in self.demanded
                    self.demanded.add(source)
                case SourceIdle(source):
                    self.demanded.remove(source)
        self.update_states()

    def check_choice(self, id: str, source: str, before: set[str]) -> None:
        _, query = self.world.subscriptions[id]
        if query.select.function != "anyof":
            return
        qualifying = {other for _, other in self.world.qualifying(id)}
        assert not before & qualifying, "the current source still qualifies"
        counts = Counter(itertools.chain.from_iterable(self.bound.values()))
        assert source == min(qualifying, key=lambda other: (-counts[other], other))

    def update_states(self) -> None:
        """Compute the expected states from the previous ones."""
        states = {}
        for id in self.world.subscriptions:
            before = self.states.get(id, SubscriptionState.STOP)
            if not self.world.runs(id):
                states[id] = SubscriptionState.STOP
            elif self.world.qualifying(id) or plan_of(self.world.subscriptions[id][1]) == "match":
                states[id] = SubscriptionState.ACTIVE
            else:
                states[id] = (
                    SubscriptionState.START
                    if before in (SubscriptionState.STOP, SubscriptionState.START)
                    else SubscriptionState.INACTIVE
                )
        self.states = states

    @initialize(data=st.data(), rooms=st.sampled_from(ROOMS))
    def populate(self, data, rooms):
        """Most faults need a few of each."""
        self.world.rooms = dict(rooms)
        self.binder = Binder(self.space, self.places())
        for id in SOURCES[:4]:
            self.register_source(id, data.draw(attributes), data.draw(positions))
        for id in SUBSCRIBERS:
            self.register_subscriber(id, data.draw(attributes), data.draw(positions))
        for id in SUBSCRIPTIONS[:4]:
            self.subscribe(id, data, data.draw(templates))

    @rule(id=st.sampled_from(SOURCES), attributes=attributes, at=positions)
    def register_source(self, id, attributes, at):
        thing = self.world.sources.setdefault(id, Thing(attributes))
        position = None if at is None else Position(id, *at, self.now)
        if position is not None:
            self.world.move(id, *at, self.now)
        self.send(SourceRegistered(id, thing.attributes, position))

    @rule(id=st.sampled_from(SUBSCRIBERS), attributes=attributes, at=positions)
    def register_subscriber(self, id, attributes, at):
        thing = self.world.subscribers.setdefault(id, Thing(attributes))
        position = None if at is None else Position(id, *at, self.now)
        if position is not None:
            self.world.move(id, *at, self.now)
        self.send(SubscriberRegistered(id, thing.attributes, position))

    @rule(data=st.data(), attributes=attributes)
    def change(self, data, attributes):
        id = data.draw(st.sampled_from(SOURCES + SUBSCRIBERS))
        if id in self.world.sources:
            self.world.sources[id].attributes = attributes
            self.send(SourceChanged(id, attributes))
        elif id in self.world.subscribers:
            self.world.subscribers[id].attributes = attributes
            self.send(SubscriberChanged(id, attributes))
        else:
            self.refuse(SourceChanged(id, attributes))

    @rule(id=st.sampled_from(SOURCES))
    def remove_source(self, id):
        if self.world.sources.pop(id, None):
            self.send(SourceRemoved(id))
        else:
            self.refuse(SourceRemoved(id))

    @rule(batch=st.dictionaries(st.sampled_from(SOURCES), st.tuples(st.sampled_from(ACTIONS), attributes, positions)))
    def handle_many_sources(self, batch):
        """Register, remove and change sources at once."""
        messages: list[SourceMessage] = []
        for id, (action, attributes, at) in batch.items():
            thing = self.world.sources.get(id)
            if thing is None:
                self.world.sources[id] = Thing(attributes)
                messages.append(SourceRegistered(id, attributes, None if at is None else Position(id, *at, self.now)))
                if at is not None:
                    self.world.move(id, *at, self.now)
                continue
            if action == "remove":
                del self.world.sources[id]
                messages.append(SourceRemoved(id))
                continue
            if action == "forget":
                thing.at, thing.time = None, Thing.time
                messages.append(PositionForgotten(id))
            if action == "change":
                thing.attributes = attributes
                messages.append(SourceChanged(id, attributes))
            if at is not None:
                self.world.move(id, *at, self.now - 1)
                messages.append(EntityMoved(id, *at, self.now - 1))
        self.now += 1
        self.apply(self.binder.handle_sources(messages, self.now))

    @rule(id=st.sampled_from(SUBSCRIBERS), often=st.integers(0, 3))
    def remove_subscriber(self, id, often):
        if often:
            return
        if self.world.subscribers.pop(id, None):
            subscriptions = self.world.subscriptions.items()
            self.world.subscriptions = {key: row for key, row in subscriptions if row[0] != id}
            self.send(SubscriberRemoved(id))
        else:
            self.refuse(SubscriberRemoved(id))

    @rule(id=st.sampled_from(SOURCES + SUBSCRIBERS), at=points, late=st.sampled_from([0, 0, 0, 3]))
    def move(self, id, at, late):
        if id in self.world.sources or id in self.world.subscribers:
            self.world.move(id, *at, self.now - late)
            self.send(EntityMoved(id, *at, self.now - late))
        else:
            self.refuse(EntityMoved(id, *at, self.now))

    @rule(data=st.data())
    def move_many(self, data):
        known = [*self.world.sources, *self.world.subscribers]
        if not known:
            return
        step = st.tuples(st.sampled_from(known), coordinates, coordinates, st.integers(-3, 0))
        steps = data.draw(st.lists(step, max_size=12))
        moves = [(id, x, y, self.now + late) for id, x, y, late in steps]
        for one in moves:
            self.world.move(*one)
        ids, x, y, times = zip(*moves, strict=True) if moves else ((), (), (), ())
        self.now += 1
        self.apply(self.binder.handle_moves(ids, x, y, times, self.now))

    @precondition(lambda self: self.world.subscribers)
    @rule(id=st.sampled_from(SUBSCRIPTIONS), data=st.data(), template=templates)
    def subscribe(self, id, data, template):
        subscriber = data.draw(st.sampled_from(sorted(self.world.subscribers)))
        select, expression, life, x, radius = template
        text = f"{select} {life}".format(expression, r=radius * self.metres, x=x)
        known = self.world.subscriptions.get(id)
        if known is None:
            known = self.world.subscriptions[id] = subscriber, check(parse(text), space=self.space)
            self.reported.pop(id, None)
        self.send(Subscribed(id, *known))

    @rule(id=st.sampled_from(SUBSCRIPTIONS))
    def unsubscribe(self, id):
        if self.world.subscriptions.pop(id, None):
            self.send(Unsubscribed(id))
        else:
            self.refuse(Unsubscribed(id))

    @rule()
    def restart(self):
        """A restored binder reports no differences."""
        things = [(SourceRegistered, self.world.sources), (SubscriberRegistered, self.world.subscribers)]
        messages: list[Message] = [
            kind(id, thing.attributes, None if thing.at is None else Position(id, *thing.at, thing.time))
            for kind, known in things
            for id, thing in sorted(known.items())
        ]
        messages += (Subscribed(id, *row) for id, row in sorted(self.world.subscriptions.items()))
        bindings = [Bound(id, *binding) for id, sources in self.bound.items() for binding in sources.items()]
        statuses = self.binder.statuses()
        self.binder = Binder(self.space, self.places())
        self.now += 1
        states = [self.reported[id] for id in self.world.subscriptions]
        assert self.binder.restore(messages, bindings, states, self.now) == []
        assert [status.sources for status in self.binder.statuses()] == [status.sources for status in statuses]

    def refuse(self, message: Message) -> None:
        with pytest.raises(NotFoundError):
            self.binder.handle(message, self.now)

    # Invariants

    @invariant()
    def bindings_equal_the_model(self):
        for id, (_, query) in self.world.subscriptions.items():
            bound = set(self.bound.get(id, ()))
            assert set(self.binder.status(id).sources) == bound
            if query.select.function == "anyof":
                qualifying = {source for _, source in self.world.qualifying(id)}
                assert len(bound) == min(len(qualifying), 1)
                assert bound <= qualifying
            else:
                assert bound == self.world.chosen(id)
        assert all(id in self.world.subscriptions for id, sources in self.bound.items() if sources)

    @invariant()
    def states_equal_the_model(self):
        statuses = {status.id: status for status in self.binder.statuses()}
        assert {id: status.state for id, status in statuses.items()} == self.states
        for id, status in statuses.items():
            assert self.reported[id].state == status.state
            assert (status.state is SubscriptionState.ACTIVE) == (status.why is None)
            if status.plan == "bind":
                assert (status.state is SubscriptionState.ACTIVE) == bool(status.sources)
        assert all(state.state is SubscriptionState.STOP for id, state in self.reported.items() if id not in statuses)
        matching = {
            id for id, status in statuses.items() if status.plan == "match" and status.state is SubscriptionState.ACTIVE
        }
        assert self.active == matching

    @invariant()
    def agents_and_expressions_are_one_to_one(self):
        """Definitions 5 and 6."""
        agents = {agent.expression: agent for agent in self.binder.agents()}
        expected: dict[str, set[str]] = {}
        for id, (_, query) in self.world.subscriptions.items():
            if plan_of(query) == "bind":
                expected.setdefault(query.expression_key, set()).add(id)
        assert {expression: set(agent.subscriptions) for expression, agent in agents.items()} == expected
        for agent in agents.values():
            assert set(agent.active) == {
                id for id in agent.subscriptions if self.states[id] is SubscriptionState.ACTIVE
            }
            assert set(agent.inactive) == {
                id for id in agent.subscriptions if self.states[id] is SubscriptionState.INACTIVE
            }

    @invariant()
    def sources_with_bindings_are_demanded(self):
        assert self.demanded == self.binder.bound_sources == set(itertools.chain.from_iterable(self.bound.values()))

    @invariant()
    def positions_are_the_latest(self):
        for id, thing in (self.world.sources | self.world.subscribers).items():
            expected = None if thing.at is None else Position(id, *thing.at, thing.time)
            assert self.binder.entity(id).position == expected


class GeographicBindingModel(BindingModel):
    space = GEOGRAPHIC
    metres = 111_194.9


TestPlanar = BindingModel.TestCase
TestPlanar.settings = thorough()
TestGeographic = GeographicBindingModel.TestCase
TestGeographic.settings = thorough()
