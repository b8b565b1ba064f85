"""The search arrays, and how bindings change: mark subscriptions that may be affected, check them, report changes.

Tree entries have chart positions (see `kernels.search`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from roamcast.bind.nearest.arrays import MIN_ROWS, NO_INTEGERS, Run, grow
from roamcast.bind.nearest.kernels.layout import (
    CHECKED,
    ENTITY,
    MEMBER,
    SUBSCRIPTION,
    UNLIMITED,
    Int32s,
    Int64s,
    Rows,
    Rule,
    SearchArrays,
)
from roamcast.bind.nearest.kernels.moves import (
    bind_anyof,
    bind_to,
    chart_positions,
    check_bindings,
    collect_changes,
    move_entities,
)
from roamcast.bind.nearest.kernels.safe_regions import UNCERTAIN, UNDECIDED
from roamcast.bind.nearest.trees import PackedTrees
from roamcast.space import Floats, Space

__all__ = ["BindingChanges", "Rebinder", "choose_source"]

_FEW = 2_000  # not worth a second lane


@dataclass(frozen=True, slots=True)
class BindingChanges:
    """The sources that subscriptions lost and gained, row by row; -1 is none.

    A subscription to one source has one row. A subscription to several has a row for each source lost or gained.
    """

    subscription: Int32s
    old: Int32s
    new: Int32s

    def __len__(self) -> int:
        return len(self.subscription)

    @classmethod
    def none(cls) -> BindingChanges:
        return cls(NO_INTEGERS, NO_INTEGERS, NO_INTEGERS)

    @classmethod
    def of(cls, subscription: Int32s, old: Int32s, new: Int32s) -> BindingChanges:
        """Leave out rows without a change, and sort by subscription."""
        rows = np.flatnonzero(old != new)
        rows = rows[np.argsort(subscription[rows], kind="stable")]
        return cls(subscription[rows], old[rows], new[rows])


def choose_source(rule: Rule, radius: float, distance: Floats, order: Int64s, bindings: npt.NDArray[np.integer]) -> int:
    """Choose a source by its distance in metres or its bindings. Returns its row, or -1.

    A distance equal to the radius is within it. Ties go to the lowest `order`.
    """
    within = np.flatnonzero(distance <= radius) if rule != Rule.NEAREST else np.arange(len(distance))
    if not len(within):
        return -1
    cost = {Rule.REMOTEOF: -distance, Rule.ANYOF: -bindings}.get(rule, distance)[within]
    best = within[cost == cost.min()]
    return int(best[np.argmin(order[best])])


class Rebinder:
    """Positions, memberships and subscriptions in arrays, and their current bindings. Handles are not checked.

    Large batches are split over `lanes` concurrent calls of `run`; results do not depend on it.
    """

    def __init__(self, space: Space, lanes: int, run: Run) -> None:
        self._space = space
        self._lanes = lanes
        self._run = run
        self.entity: Rows = np.zeros(MIN_ROWS, ENTITY)
        self.label: Int64s = np.zeros(0, np.int64)
        self.bindings: Int32s = np.zeros(0, np.int32)
        self.members, self.subscriptions = PackedTrees(MEMBER), PackedTrees(SUBSCRIPTION)
        self.rule: npt.NDArray[np.int8] = np.zeros(0, np.int8)
        self.radius: Floats = np.zeros(0, np.float64)

    @property
    def nbytes(self) -> int:
        arrays = (self.entity, self.label, self.bindings, self.rule, self.radius)
        return self.members.nbytes + self.subscriptions.nbytes + sum(rows.nbytes for rows in arrays)

    def set_entities(self, entities: Int32s, x: Floats, y: Floats) -> None:
        """Enter new entities."""
        self.entity = grow(self.entity, int(entities.max(initial=-1)) + 1)
        rows = np.zeros(len(x), ENTITY)
        rows["x"], rows["y"], rows["budget"], rows["member"], rows["subscription"] = x, y, UNLIMITED, -1, -1
        self.entity[entities] = rows

    def set_sources(self, sources: Int32s) -> None:
        """Give entities a label and a count of bindings."""
        size = int(sources.max(initial=-1)) + 1
        self.label, self.bindings = grow(self.label, size), grow(self.bindings, size)
        self.bindings[sources] = 0

    def add_subscriptions(self, subscribers: Int32s, groups: Int32s, rules: Rows, radii: Floats) -> Int32s:
        """Add suspended subscriptions. Returns their handles."""
        subscriptions = self.subscriptions.add(subscribers, groups, self.entity["subscription"])
        size = self.subscriptions.count
        self.rule, self.radius = grow(self.rule, size), grow(self.radius, size)
        self.rule[subscriptions], self.radius[subscriptions] = rules, radii
        return subscriptions

    def resume(self, subscriptions: Int32s, previous: Int32s) -> BindingChanges:
        """Bind subscriptions. Those with ANYOF keep their `previous` source (or -1) if it still qualifies."""
        rows = self._charted(self.subscriptions.item["entity"][subscriptions], SUBSCRIPTION)
        rows["safe"], rows["near"], rows["far"], rows["bound"], rows["marked"] = -1, -np.inf, -1, -1, 1
        rows["rule"], rows["radius"] = self.rule[subscriptions], self.radius[subscriptions]
        kept = np.flatnonzero((previous >= 0) & (self.rule[subscriptions] == Rule.ANYOF))
        groups = self.subscriptions.item["group"][subscriptions[kept]]
        rows["bound"][kept] = self.members.find(previous[kept], groups, self.entity["member"])
        self.subscriptions.add_entries(subscriptions, rows, self.entity)
        return self._check(NO_INTEGERS, subscriptions, new=True)

    def suspend(self, subscriptions: Int32s) -> BindingChanges:
        """Unbind subscriptions until they are resumed."""
        old = self.sources_of(subscriptions)
        self.subscriptions.remove_entries(subscriptions)
        np.subtract.at(self.bindings, old[old >= 0], 1)
        return BindingChanges.of(subscriptions, old, np.full(len(old), -1, np.int32))

    def sources_of(self, subscriptions: Int32s) -> Int32s:
        """The source of each subscription, or -1."""
        sources = np.full(len(subscriptions), -1, np.int32)
        entries = self.subscriptions.item["entry"][subscriptions]
        with_entry = np.flatnonzero(entries >= 0)
        members = self.subscriptions.entry["bound"][entries[with_entry]]
        sources[with_entry[members >= 0]] = self.members.item["entity"][members[members >= 0]]
        return sources

    def move(self, entities: Int32s, x: Floats, y: Floats) -> tuple[Int32s, Int32s]:
        """Set positions. Returns the sources that moved and the subscriptions to check; pass them to `rebind`."""
        arrays, lanes = self._search_arrays(), self._lanes if len(entities) > _FEW else 1

        def move_lane(lane: int) -> tuple[Int32s, Int32s]:
            moved, marks = np.empty(len(entities), np.int32), np.empty(self.subscriptions.count, np.int32)
            sources, subscriptions = move_entities(arrays, lane, lanes, entities, x, y, moved, marks)
            return moved[:sources], marks[:subscriptions]

        moved, marks = (np.concatenate(parts) for parts in zip(*self._run(move_lane, range(lanes)), strict=True))
        return moved, marks

    def rebind(self, moved: Int32s, marks: Int32s, leaving: Int32s, sources: Int32s, groups: Int32s) -> BindingChanges:
        """Update bindings after `move`; at the same time memberships end (`leaving`) and sources join groups."""
        members = self.members.items_of(np.unique(moved), self.entity["member"])
        if not len(sources) and not len(leaving):
            return self._check(members, marks)
        joining = self.members.add(sources, groups, self.entity["member"])
        self.members.add_entries(joining, self._charted(sources, MEMBER), self.entity)
        self.entity["budget"][sources] = -1.0
        # Last, because the removed entries are still read: no tree may be sorted in between.
        self.members.remove_entries(leaving)
        changes = self._check(np.concatenate([members[~np.isin(members, leaving)], leaving, joining]), marks)
        self.members.remove(leaving, self.entity["member"])
        return changes

    def _charted(self, entities: Int32s, entry: np.dtype[np.void]) -> Rows:
        """New entries at the chart positions of entities."""
        rows = np.zeros(max(len(entities), MIN_ROWS), entry)
        geographic = self._space.name == "geographic"
        chart_positions(geographic, self.entity, np.ascontiguousarray(entities), rows["x"], rows["y"], rows["z"])
        rows = rows[: len(entities)]
        rows["entity"] = entities
        return rows

    def _search_arrays(self) -> SearchArrays:
        m, s = self.members, self.subscriptions
        return SearchArrays(
            self._space.name == "geographic",
            self.entity,
            self.label,
            self.bindings,
            *(m.item, m.tree, m.entry, m.box),
            *(s.item, s.tree, s.entry, s.box),
        )

    def _check(self, members: Int32s, marks: Int32s, *, new: bool = False) -> BindingChanges:
        """Check marked subscriptions, and those affected by members that moved, joined or left.

        With `new` the subscriptions had no binding before: a previous source that they keep is reported as gained.
        """
        if not len(members) and not len(marks):
            return BindingChanges.none()
        arrays = self._search_arrays()
        plan = _CheckPlan.of(self.members.item["group"], members, self.subscriptions.item["group"], marks)
        cuts = plan.cuts(self._lanes)

        def check_lane(lane: int) -> Rows:
            groups, first_member, first_mark = plan.part(cuts[lane], cuts[lane + 1])
            checked = np.empty(int(self.subscriptions.tree["live"][groups].sum()), CHECKED)
            previous = np.empty(len(plan.members), MEMBER)
            count = check_bindings(
                arrays, groups, first_member, plan.members, first_mark, plan.marks, previous, checked
            )
            return checked[:count]

        parts = []
        for checked in list(self._run(check_lane, range(len(cuts) - 1))):
            if new:
                checked["old"] = -1
            changed = np.empty(len(checked), np.int32)
            parts.append(checked[changed[: collect_changes(arrays, checked, changed)]])
        rows = np.concatenate(parts)
        self._decide(rows)
        changes = BindingChanges.of(rows["subscription"], rows["old"], self.sources_of(rows["subscription"]))
        self.members.sort_worn(plan.groups, self.entity)
        self.subscriptions.sort_worn(plan.groups, self.entity)
        return changes

    def _decide(self, rows: Rows) -> None:
        """Bind what kernels left open: uncertain choices by `space.distance`, then ANYOF one after another."""
        arrays = self._search_arrays()
        undecided = rows["subscription"][rows["slack"] == UNDECIDED].tolist()
        uncertain = np.sort(rows[rows["slack"] == UNCERTAIN], order="subscription")
        for subscription, old in zip(uncertain["subscription"].tolist(), uncertain["old"].tolist(), strict=True):
            if self.rule[subscription] != Rule.ANYOF:
                bind_to(arrays, subscription, self._choose(subscription))
            elif (kept := self._kept(subscription, old)) >= 0:
                bind_to(arrays, subscription, kept)
            else:
                undecided.append(subscription)
        queue = np.sort(np.array(undecided, np.int32))
        while len(queue):
            count = bind_anyof(arrays, queue)
            if count < len(queue):
                bind_to(arrays, int(queue[count]), self._choose(int(queue[count])))
            queue = queue[count + 1 :]

    def _choose(self, subscription: int) -> int:
        """The membership to bind to, by the exact distances of the space, or -1."""
        members = self.members.members_of(self.subscriptions.item["group"][subscription])
        sources = self.members.item["entity"][members]
        rule, radius = Rule(self.rule[subscription]), float(self.radius[subscription])
        distance = self._distance(subscription, sources)
        row = choose_source(rule, radius, distance, self.label[sources], self.bindings[sources])
        return int(members[row]) if row >= 0 else -1

    def _kept(self, subscription: int, source: int) -> int:
        """The membership of the current source of a subscription with ANYOF, if it still qualifies, or -1."""
        group = self.subscriptions.item["group"][subscription : subscription + 1]
        sources = np.array([source], np.int32)
        near = source >= 0 and self._distance(subscription, sources)[0] <= self.radius[subscription]
        return int(self.members.find(sources, group, self.entity["member"])[0]) if near else -1

    def _distance(self, subscription: int, sources: Int32s) -> Floats:
        here, there = self.entity[self.subscriptions.item["entity"][subscription]], self.entity[sources]
        return self._space.distance(here["x"], here["y"], there["x"], there["y"])


@dataclass(frozen=True, slots=True)
class _CheckPlan:
    """Members and marked subscriptions to check, sorted by group; `first_…` delimit those of each group."""

    groups: Int32s
    members: Int32s
    first_member: Int64s
    marks: Int32s
    first_mark: Int64s

    @classmethod
    def of(cls, member_group: Int32s, members: Int32s, mark_group: Int32s, marks: Int32s) -> _CheckPlan:
        members = members[np.argsort(member_group[members], kind="stable")]
        marks = marks[np.argsort(mark_group[marks], kind="stable")]
        groups = np.union1d(member_group[members], mark_group[marks])
        first_member = np.append(np.searchsorted(member_group[members], groups), len(members))
        first_mark = np.append(np.searchsorted(mark_group[marks], groups), len(marks))
        return cls(groups, members, first_member, marks, first_mark)

    def part(self, start: int, end: int) -> tuple[Int32s, Int64s, Int64s]:
        """The groups from start to end, with their delimiters."""
        return self.groups[start:end], self.first_member[start : end + 1], self.first_mark[start : end + 1]

    def cuts(self, lanes: int) -> list[int]:
        """Where to cut the groups so that each lane has about the same amount of work."""
        weight = 10 * self.first_member + self.first_mark
        if weight[-1] <= _FEW:
            lanes = 1
        shares = weight[-1] * np.arange(1, lanes) / lanes
        return [0, *np.searchsorted(weight, shares).tolist(), len(self.groups)]
