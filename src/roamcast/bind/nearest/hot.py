"""The hot arrays, and the one way bindings change: mark what may be touched, look at it, say what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from roamcast.bind.nearest.forest import Forest, grown
from roamcast.bind.nearest.kernels.batches import choose_any, conclude, fasten, place, settle, walk
from roamcast.bind.nearest.kernels.holding import DOUBTFUL, OPEN
from roamcast.bind.nearest.kernels.layout import ENDLESS, ENTITY, FOUND, MEMBER, WATCHER, Integers, Rows, Rule, World
from roamcast.bind.nearest.reference import choose
from roamcast.space import Floats, Space

__all__ = ["NOTHING", "Changes", "Hot", "Run"]

Run: TypeAlias = Callable[[Callable[[int], Any], Iterable[int]], Iterable[Any]]

NOTHING = np.empty(0, np.int32)

_NOWHERE = np.empty(0, np.float64)
_FEW = 2_000  # what is not worth a second lane


@dataclass(frozen=True, slots=True)
class Changes:
    """What became of bindings: a row for each subscription whose source changed, by subscription. -1 is none."""

    subscription: Integers
    old: Integers
    new: Integers

    def __len__(self) -> int:
        return len(self.subscription)

    def __add__(self, other: Changes) -> Changes:
        """Both; no subscription is in both."""
        return _changes(*(np.concatenate(pair) for pair in zip(self._rows(), other._rows(), strict=True)))

    @classmethod
    def none(cls) -> Changes:
        return cls(NOTHING, NOTHING, NOTHING)

    def _rows(self) -> tuple[Integers, Integers, Integers]:
        return self.subscription, self.old, self.new


class Hot:
    """Positions, memberships and watchers (subscriptions) in arrays. Handles are good; who calls has seen to that."""

    def __init__(self, space: Space, lanes: int, run: Run) -> None:
        self._space = space
        self._lanes = lanes
        self._run = run
        self.entity: Rows = np.zeros(0, ENTITY)
        self.label: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self.bindings: Integers = np.zeros(0, np.int32)
        self.members, self.watchers = Forest(MEMBER), Forest(WATCHER)
        self.rule: npt.NDArray[np.int8] = np.zeros(0, np.int8)
        self.radius: Floats = np.zeros(0, np.float64)

    @property
    def nbytes(self) -> int:
        arrays = (self.entity, self.label, self.bindings, self.rule, self.radius)
        return self.members.nbytes + self.watchers.nbytes + sum(rows.nbytes for rows in arrays)

    def put_entities(self, entities: Integers, x: Floats, y: Floats) -> None:
        """New entities; handles are dense."""
        self.entity = grown(self.entity, int(entities.max(initial=-1)) + 1)
        rows = np.zeros(len(x), ENTITY)
        rows["x"], rows["y"], rows["budget"], rows["member"], rows["watcher"] = x, y, ENDLESS, -1, -1
        self.entity[entities] = rows

    def put_sources(self, sources: Integers) -> None:
        """Entities that are sources have a label and are counted with their bindings."""
        size = int(sources.max(initial=-1)) + 1
        self.label, self.bindings = grown(self.label, size), grown(self.bindings, size)
        self.bindings[sources] = 0

    def leave(self, members: Integers) -> Changes:
        return self.change(NOTHING, _NOWHERE, _NOWHERE, members, NOTHING, NOTHING)

    def take(self, subscribers: Integers, groups: Integers, rules: Rows, radii: Floats) -> Integers:
        """New watchers, asleep."""
        watchers = self.watchers.take(subscribers, groups, self.entity["watcher"])
        self.rule, self.radius = grown(self.rule, self.watchers.count), grown(self.radius, self.watchers.count)
        self.rule[watchers], self.radius[watchers] = rules, radii
        return watchers

    def start(self, watchers: Integers, bound: Integers) -> Changes:
        """Wake watchers; `bound` are sources that those with ANYOF keep if they may."""
        rows = self._rows(self.watchers.item["entity"][watchers], WATCHER)
        rows["safe"], rows["near"], rows["far"], rows["bound"], rows["marked"] = -1, -np.inf, -1, -1, 1
        rows["rule"], rows["radius"] = self.rule[watchers], self.radius[watchers]
        kept = np.flatnonzero((bound >= 0) & (self.rule[watchers] == Rule.ANYOF))
        groups = self.watchers.item["tree"][watchers[kept]]
        rows["bound"][kept] = self.members.find(bound[kept], groups, self.entity["member"])
        self.watchers.put_in(watchers, rows, self.entity)
        return self._settle(NOTHING, watchers, fresh=True)

    def stop(self, watchers: Integers) -> Changes:
        """Put watchers to sleep."""
        old = self.bound(watchers)
        self.watchers.take_out(watchers)
        watchers, old = watchers[old >= 0], old[old >= 0]
        np.subtract.at(self.bindings, old, 1)
        return _changes(watchers, old, np.full(len(old), -1, np.int32))

    def bound(self, watchers: Integers) -> Integers:
        """The sources of watchers; asleep they have none."""
        bound = np.full(len(watchers), -1, np.int32)
        awake = np.flatnonzero(self.watchers.item["place"][watchers] >= 0)
        members = self.watchers.spot["bound"][self.watchers.item["place"][watchers[awake]]]
        bound[awake[members >= 0]] = self.members.item["entity"][members[members >= 0]]
        return bound

    def change(
        self,
        entities: Integers,
        x: Floats,
        y: Floats,
        leaving: Integers,
        sources: Integers,
        groups: Integers,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Changes:
        """Entities move, memberships end, and sources come into groups: all at once.

        `meanwhile` is called when all have moved and nothing has been chosen.
        """
        moved, marks = self._walk(entities, x, y)
        meanwhile()
        members = self.members.items_of(np.unique(moved), self.entity["member"])
        if not len(sources) and not len(leaving):
            return self._settle(members, marks)
        joining = self.members.take(sources, groups, self.entity["member"])
        self.members.put_in(joining, self._rows(sources, MEMBER), self.entity)
        self.entity["budget"][sources] = -1.0
        self.members.take_out(leaving)  # last: where they were is looked at, so no tree may be laid out anew after it
        changes = self._settle(np.concatenate([members[~np.isin(members, leaving)], leaving, joining]), marks)
        self.members.give_back(leaving, self.entity["member"])
        return changes

    def _walk(self, entities: Integers, x: Floats, y: Floats) -> tuple[Integers, Integers]:
        """Put entities where they are now. Sources that have moved, and watchers to be looked at."""
        world, lanes = self._world(), self._lanes if len(entities) > _FEW else 1

        def walk_lane(lane: int) -> tuple[Integers, Integers]:
            moved, marks = np.empty(len(entities), np.int32), np.empty(self.watchers.count, np.int32)
            sources, watchers = walk(world, lane, lanes, entities, x, y, moved, marks)
            return moved[:sources], marks[:watchers]

        moved, marks = (np.concatenate(parts) for parts in zip(*self._run(walk_lane, range(lanes)), strict=True))
        return moved, marks

    def _rows(self, entities: Integers, spot: np.dtype[np.void]) -> Rows:
        rows = np.zeros(len(entities), spot)
        place(self._world(), entities, rows)
        return rows

    def _world(self) -> World:
        m, w = self.members, self.watchers
        return World(
            self._space.name == "geographic",
            self.entity,
            self.label,
            self.bindings,
            *(m.item, m.tree, m.spot, m.box),
            *(w.item, w.tree, w.spot, w.box),
        )

    def _settle(self, members: Integers, marks: Integers, *, fresh: bool = False) -> Changes:
        """Look at marked watchers, and at all to which it matters that members moved, came or went."""
        if not len(members) and not len(marks):
            return Changes.none()
        world, work = self._world(), _by_group(self.members.item["tree"], members, self.watchers.item["tree"], marks)
        cuts = work.cuts(self._lanes)

        def settle_lane(lane: int) -> Rows:
            groups, first, begin = work.part(cuts[lane], cuts[lane + 1])
            found = np.empty(int(self.watchers.tree["live"][groups].sum()), FOUND)
            was = np.empty(len(work.members), MEMBER)
            return found[: settle(world, groups, first, work.members, begin, work.marks, was, found)]

        touched = []
        for found in list(self._run(settle_lane, range(len(cuts) - 1))):
            if fresh:
                found["old"] = -1
            changed = np.empty(len(found), np.int32)
            touched.append(found[changed[: conclude(world, found, changed)]])
        rows = np.concatenate(touched)
        self._decide(rows)
        changes = _changes(rows["watcher"], rows["old"], self.bound(rows["watcher"]))
        self.members.tidy(work.groups, self.entity)
        self.watchers.tidy(work.groups, self.entity)
        return changes

    def _decide(self, rows: Rows) -> None:
        """Bind those that kernels left unbound: what only the space can measure, then ANYOF in turn."""
        world = self._world()
        open_ = rows["watcher"][rows["slack"] == OPEN].tolist()
        doubtful = np.sort(rows[rows["slack"] == DOUBTFUL], order="watcher")
        for watcher, old in zip(doubtful["watcher"].tolist(), doubtful["old"].tolist(), strict=True):
            if self.rule[watcher] != Rule.ANYOF:
                fasten(world, watcher, self._choose(watcher))
            elif (kept := self._kept(watcher, old)) >= 0:
                fasten(world, watcher, kept)
            else:
                open_.append(watcher)
        queue = np.sort(np.array(open_, np.int32))
        while len(queue):
            count = choose_any(world, queue)
            if count < len(queue):
                fasten(world, int(queue[count]), self._choose(int(queue[count])))
            queue = queue[count + 1 :]

    def _choose(self, watcher: int) -> int:
        """The membership to bind to, by the distances of the space."""
        members = self.members.members_of(self.watchers.item["tree"][watcher])
        sources = self.members.item["entity"][members]
        rule, radius = Rule(self.rule[watcher]), float(self.radius[watcher])
        row = choose(rule, radius, self._distance(watcher, sources), self.label[sources], self.bindings[sources])
        return int(members[row]) if row >= 0 else -1

    def _kept(self, watcher: int, source: int) -> int:
        """The membership to which a watcher with ANYOF was bound, if it still qualifies."""
        group = self.watchers.item["tree"][watcher : watcher + 1]
        sources = np.array([source], np.int32)
        near = source >= 0 and self._distance(watcher, sources)[0] <= self.radius[watcher]
        return int(self.members.find(sources, group, self.entity["member"])[0]) if near else -1

    def _distance(self, watcher: int, sources: Integers) -> Floats:
        here, there = self.entity[self.watchers.item["entity"][watcher]], self.entity[sources]
        return self._space.distance(here["x"], here["y"], there["x"], there["y"])


@dataclass(frozen=True, slots=True)
class _Work:
    """What is to be done, group by group: ranges of members and of marked watchers."""

    groups: Integers
    members: Integers
    first: Integers
    marks: Integers
    begin: Integers

    def part(self, start: int, end: int) -> tuple[Integers, Integers, Integers]:
        return self.groups[start:end], self.first[start : end + 1], self.begin[start : end + 1]

    def cuts(self, lanes: int) -> list[int]:
        """Where to cut the groups so that each lane has about as much to do."""
        weight = 10 * self.first + self.begin
        if weight[-1] <= _FEW:
            lanes = 1
        shares = weight[-1] * np.arange(1, lanes) / lanes
        return [0, *np.searchsorted(weight, shares).tolist(), len(self.groups)]


def _by_group(member_group: Integers, members: Integers, watcher_group: Integers, marks: Integers) -> _Work:
    members = members[np.argsort(member_group[members], kind="stable")]
    marks = marks[np.argsort(watcher_group[marks], kind="stable")]
    groups = np.union1d(member_group[members], watcher_group[marks])
    first = np.append(np.searchsorted(member_group[members], groups), len(members))
    begin = np.append(np.searchsorted(watcher_group[marks], groups), len(marks))
    return _Work(groups, members, first, marks, begin)


def _changes(subscription: Integers, old: Integers, new: Integers) -> Changes:
    rows = np.flatnonzero(old != new)
    rows = rows[np.argsort(subscription[rows])]
    return Changes(subscription[rows], old[rows], new[rows])
