"""Compares bindings with the reference after any sequence of moves, memberships and subscriptions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, pi

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from nearest_reference import ReferenceSource, ReferenceSubscription, binding_counts, join, leave, rebind
from profiles import brief

from roamcast.bind.nearest.sources import BindingChanges, NearestSources, Rule
from roamcast.space import GEOGRAPHIC, PLANAR, Space

GROUPS = 3

# Few different coordinates, so that distances are often equal, and equal to a radius.
Point = tuple[float, float]
steps = st.integers(-6, 6)
places = st.tuples(steps, steps)
radii = st.sampled_from([0.0, 1.0, 2.0, 5.0, 13.0, inf])
picks = st.integers(0, 10_000)
groups = st.integers(0, GROUPS - 1)


@dataclass(frozen=True)
class Subscription:
    entity: int
    group: int
    rule: Rule
    radius: float
    suspended: bool


def columns(pairs: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [entity for entity, _ in pairs], [group for _, group in pairs]


class Histories(RuleBasedStateMachine):
    """The model has positions, memberships and subscriptions by handle; the reference computes the bindings."""

    space: Space = PLANAR
    unit = 1.0  # metres of one step

    def __init__(self) -> None:
        super().__init__()
        self.nearest = NearestSources(self.space)
        self.groups = [self.nearest.add_group() for _ in range(GROUPS)]
        self.where: dict[int, Point] = {}
        self.ids: dict[int, str] = {}
        self.member: dict[int, set[int]] = {}
        self.subscriptions: dict[int, Subscription] = {}
        self.rules: dict[int, Rule] = {}  # also of removed subscriptions
        self.bound: dict[int, str | None] = {}
        self.names = 0

    def point(self, at: tuple[float, float]) -> Point:
        return at[0] * self.unit, at[1] * self.unit

    def moved(self, at: Point, by: tuple[float, float]) -> Point:
        dx, dy = self.point(by)
        return at[0] + dx, at[1] + dy

    def pick(self, among: dict[int, object], number: int) -> int:
        return sorted(among)[number % len(among)]

    def expect(self, changes: BindingChanges, gone: dict[str, int] | None = None) -> None:
        """The reported changes are exactly the difference of the reference bindings, in order.

        ANYOF comes last. Among the others, and among those, subscriptions that ended come first; then by handle.
        """
        before = self.bound
        sources = {self.ids[e]: ReferenceSource(*self.where[e], frozenset(self.member[e])) for e in self.ids}
        subscriptions = {
            number: ReferenceSubscription(*self.where[s.entity], s.group, s.rule, s.radius, s.suspended)
            for number, s in self.subscriptions.items()
        }
        self.bound = rebind(self.space, sources, subscriptions, before)
        handles = {id: entity for entity, id in self.ids.items()} | (gone or {})
        changed = [n for n in before.keys() | self.bound.keys() if before.get(n) != self.bound.get(n)]
        changed.sort(key=lambda n: (self.rules[n] is Rule.ANYOF, n in self.subscriptions, n))
        expected = [
            (n, handles.get(before.get(n) or "", -1), handles.get(self.bound.get(n) or "", -1)) for n in changed
        ]
        assert list(zip(changes.subscription, changes.old, changes.new, strict=True)) == expected

    @initialize(at=st.lists(places, max_size=25), names=st.permutations(range(25)))
    def many_sources(self, at: list[tuple[int, int]], names: list[int]) -> None:
        """The order of ids is not the order of handles."""
        ids, where = [f"m {name:02}" for name in names[: len(at)]], [self.point(p) for p in at]
        sources = self.nearest.add_sources(ids, [p[0] for p in where], [p[1] for p in where])
        for entity, id, point in zip(sources.tolist(), ids, where, strict=True):
            self.where[entity], self.ids[entity], self.member[entity] = point, id, {self.groups[0]}
        self.expect(join(self.nearest, sources, self.groups[0]))

    @rule(at=places, first=st.booleans(), groups=st.sets(groups))
    def source_appears(self, at: tuple[int, int], first: bool, groups: set[int]) -> None:
        self.names += 1
        id, where = f"a {1000 - self.names}" if first else f"z {self.names}", self.point(at)
        entity = int(self.nearest.add_sources([id], *where)[0])
        self.where[entity], self.ids[entity], self.member[entity] = where, id, {self.groups[g] for g in groups}
        self.expect(join(self.nearest, [entity] * len(groups), sorted(self.member[entity])))

    @rule(at=places)
    def subscriber_appears(self, at: tuple[int, int]) -> None:
        where = self.point(at)
        self.where[int(self.nearest.add_subscribers(*where)[0])] = where

    @precondition(lambda self: self.where)
    @rule(number=picks)
    def entity_disappears(self, number: int) -> None:
        entity = self.pick(self.where, number)
        gone = {self.ids.pop(entity): entity} if entity in self.ids else {}
        del self.where[entity]
        self.member.pop(entity, None)
        self.subscriptions = {n: s for n, s in self.subscriptions.items() if s.entity != entity}
        self.expect(self.nearest.remove(entity), gone)

    @precondition(lambda self: self.ids)
    @rule(number=picks, group=groups)
    def source_joins_or_leaves(self, number: int, group: int) -> None:
        entity, group = self.pick(self.ids, number), self.groups[group]
        inside = group in self.member[entity]
        self.member[entity] ^= {group}
        self.expect(leave(self.nearest, entity, group) if inside else join(self.nearest, entity, group))

    @precondition(lambda self: self.ids)
    @rule(changes=st.lists(st.tuples(picks, groups), min_size=2, max_size=40))
    def sources_join_and_leave(self, changes: list[tuple[int, int]]) -> None:
        """Many at once, without bindings in between."""
        pairs = sorted({(self.pick(self.ids, number), self.groups[group]) for number, group in changes})
        left = [(entity, group) for entity, group in pairs if group in self.member[entity]]
        come = [pair for pair in pairs if pair not in left]
        for entity, group in pairs:
            self.member[entity] ^= {group}
        self.expect(self.nearest.move([], [], [], leaving=columns(left), joining=columns(come)))

    @precondition(lambda self: self.where)
    @rule(new=st.lists(st.tuples(picks, groups, st.sampled_from(Rule), radii), max_size=12), suspended=st.booleans())
    def subscribe(self, new: list[tuple[int, int, Rule, float]], suspended: bool) -> None:
        added = [
            Subscription(self.pick(self.where, n), self.groups[g], rule, radius * self.metres, suspended)
            for n, g, rule, radius in new
        ]
        columns = ([getattr(s, name) for s in added] for name in ("entity", "group", "rule", "radius"))
        handles, changes = self.nearest.add_subscriptions(*columns, suspended=suspended)
        self.subscriptions.update(zip(handles.tolist(), added, strict=True))
        self.rules.update((handle, self.subscriptions[handle].rule) for handle in handles.tolist())
        self.expect(changes)

    @precondition(lambda self: self.subscriptions)
    @rule(number=picks)
    def unsubscribe(self, number: int) -> None:
        subscription = self.pick(self.subscriptions, number)
        del self.subscriptions[subscription]
        self.expect(self.nearest.remove_subscriptions(subscription))

    @precondition(lambda self: self.subscriptions)
    @rule(number=picks, suspend=st.booleans())
    def suspend_or_resume(self, number: int, suspend: bool) -> None:
        subscription = self.pick(self.subscriptions, number)
        self.subscriptions[subscription] = replace(self.subscriptions[subscription], suspended=suspend)
        self.expect(self.nearest.suspend(subscription) if suspend else self.nearest.resume(subscription))

    @precondition(lambda self: self.where)
    @rule(moves=st.lists(st.tuples(picks, places), min_size=1, max_size=8))
    def jump(self, moves: list[tuple[int, tuple[int, int]]]) -> None:
        self.move([(self.pick(self.where, number), self.point(at)) for number, at in moves])

    @precondition(lambda self: self.where)
    @rule(
        moves=st.lists(st.tuples(picks, places), min_size=1, max_size=8), scale=st.sampled_from([1e-9, 1e-3, 0.1, 0.25])
    )
    def step(self, moves: list[tuple[int, tuple[int, int]]], scale: float) -> None:
        """Small steps, after which most bindings need no check."""
        where, steps = dict(self.where), []
        for number, (dx, dy) in moves:
            entity = self.pick(self.where, number)
            where[entity] = self.moved(where[entity], (dx * scale, dy * scale))
            steps.append((entity, where[entity]))
        self.move(steps)

    @precondition(lambda self: self.where)
    @rule(number=picks, towards=places)
    def walk(self, number: int, towards: tuple[int, int]) -> None:
        """In a straight line, so that safe regions are used up completely."""
        entity, parts = self.pick(self.where, number), 24
        for _ in range(parts):
            self.move([(entity, self.moved(self.where[entity], (towards[0] / parts, towards[1] / parts)))])

    def move(self, moves: list[tuple[int, Point]]) -> None:
        self.where.update(moves)
        self.expect(self.nearest.move([e for e, _ in moves], [p[0] for _, p in moves], [p[1] for _, p in moves]))

    @property
    def metres(self) -> float:
        return self.unit

    @invariant()
    def bindings_are_right(self) -> None:
        numbers, sources = sorted(self.subscriptions), sorted(self.ids)
        handles = {id: entity for entity, id in self.ids.items()}
        expected = [handles.get(self.bound.get(number) or "", -1) for number in numbers]
        assert self.nearest.source_of(numbers).tolist() == expected
        assert binding_counts(self.nearest, sources) == [expected.count(source) for source in sources]
        assert self.nearest.bound_sources.tolist() == sorted(set(expected) - {-1})
        for source in sources:
            bound_here = [number for number, bound in zip(numbers, expected, strict=True) if bound == source]
            assert sorted(self.nearest.bound_to(source)) == bound_here

    @invariant()
    def positions_are_right(self) -> None:
        entities = sorted(self.where)
        assert list(zip(*self.nearest.positions(entities), strict=True)) == [self.where[entity] for entity in entities]


class Worldwide(Histories):
    """Steps of 30 degrees in longitude and 15 in latitude: from pole to pole and across the antimeridian."""

    space = GEOGRAPHIC
    unit = 15.0

    def point(self, at: tuple[float, float]) -> Point:
        return (at[0] * 2 * self.unit + 180) % 360 - 180, at[1] * self.unit

    def moved(self, at: Point, by: tuple[float, float]) -> Point:
        x, y = at[0] + by[0] * 2 * self.unit, at[1] + by[1] * self.unit
        return (x + 180) % 360 - 180, min(max(y, -90.0), 90.0)

    @property
    def metres(self) -> float:
        return 6_378_137.0 * pi / 180 * self.unit


class InTown(Histories):
    """Steps of some ten metres in the middle latitudes."""

    space = GEOGRAPHIC
    unit = 1e-4

    def point(self, at: tuple[float, float]) -> Point:
        return 8.8 + at[0] * self.unit, 53.1 + at[1] * self.unit

    def moved(self, at: Point, by: tuple[float, float]) -> Point:
        return at[0] + by[0] * self.unit, at[1] + by[1] * self.unit

    @property
    def metres(self) -> float:
        return float(GEOGRAPHIC.distance(8.8, 53.1, 8.8, 53.1 + self.unit))


class Microscopic(Histories):
    """Squares of distances underflow."""

    unit = 1e-160


class Cosmic(Histories):
    """Squares of distances nearly overflow."""

    unit = 1e148


TestPlanar = Histories.TestCase
TestWorldwide = Worldwide.TestCase
TestWorldwide.settings = brief()
TestInTown = InTown.TestCase
TestInTown.settings = brief()
TestMicroscopic = Microscopic.TestCase
TestMicroscopic.settings = brief()
TestCosmic = Cosmic.TestCase
TestCosmic.settings = brief()
