"""Nearest sources: keeps subscriptions bound while sources and subscribers move, a batch of moves in a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from roamcast.bind.nearest.arrays import (
    NO_INTEGERS,
    NO_MEMBERSHIPS,
    HandleAllocator,
    Membership,
    Memberships,
    Run,
    grow,
)
from roamcast.bind.nearest.id_order import IdOrder
from roamcast.bind.nearest.k_nearest import KNearest
from roamcast.bind.nearest.kernels.layout import Int32s, Rule
from roamcast.bind.nearest.rebinding import BindingChanges, Rebinder
from roamcast.errors import ConflictError, InputError, NotFoundError
from roamcast.space import Floats, Space

__all__ = ["BindingChanges", "NearestSources", "Rule", "checked_points"]

_MAX_COORDINATE = 1e150
_UNUSED, _SUBSCRIBER, _SOURCE = 0, 1, 2  # kinds of entities
_NO_POINTS = np.empty(0, np.float64)


class NearestSources:
    """Keeps each subscription bound to the sources that its rule chooses, by the exact `space.distance`.

    Everything is known by handles: dense numbers that are used again after removal. An *entity* has a position. A
    source is an entity with an id, which breaks ties; any entity may subscribe. A *group* is a set of sources that
    qualify for a source expression apart from their location. A subscription is to one group, by a rule; while it is
    suspended it is not bound. Points must be valid in the space, with coordinates up to 1e150.

    Methods that change something return the net changes of bindings: subscriptions that ended, those to several
    sources, the others; each by handle, but ANYOF last. Unknown handles raise NotFoundError, and nothing is changed.

    Large batches are split over `lanes` concurrent calls of `run` (such as an executor's `map`); results do not depend
    on it. Apart from that, only one call may run at a time.
    """

    def __init__(self, space: Space, *, lanes: int = 1, run: Run = map) -> None:
        self._rebinder = Rebinder(space, lanes, run)
        self._k_nearest = KNearest(space, self._rebinder)
        self._entities, self._groups = HandleAllocator(), HandleAllocator()
        self._kind: npt.NDArray[np.int8] = np.zeros(0, np.int8)  # by entity
        self._subscribed: Int32s = np.zeros(0, np.int32)  # by group: number of subscriptions; -1: no such group
        self._order = IdOrder()
        self._was_bound: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)  # by source: as last reported
        self._rebound: set[int] = set()  # sources that were lost or gained since then

    @property
    def nbytes(self) -> int:
        """The memory of positions, bindings, safe regions and trees."""
        return self._rebinder.nbytes + self._kind.nbytes + self._subscribed.nbytes

    @property
    def searches(self) -> int:
        """How often the sources of a group had to be searched for a subscription."""
        return int(self._rebinder.subscriptions.tree["searches"].sum())

    # Entities and groups

    def add_sources(self, ids: Sequence[str], x: npt.ArrayLike, y: npt.ArrayLike) -> Int32s:
        """Add sources, in no group yet. Returns their handles. Raises ConflictError for an id that is in use."""
        self._order.check(ids)
        sources = self._add_entities(x, y, _SOURCE)
        self._rebinder.set_sources(sources)
        self._order.add(ids, sources.tolist(), self._rebinder.label)
        self._was_bound = grow(self._was_bound, len(self._rebinder.bindings))
        self._was_bound[sources] = False
        return sources

    def add_subscribers(self, x: npt.ArrayLike, y: npt.ArrayLike) -> Int32s:
        """Add entities without ids. Returns their handles."""
        return self._add_entities(x, y, _SUBSCRIBER)

    def remove(self, entities: npt.ArrayLike) -> BindingChanges:
        """Remove entities with their memberships and subscriptions."""
        entities = np.unique(self._known(entities))
        ended = self.remove_subscriptions(
            self._rebinder.subscriptions.items_of(entities, self._rebinder.entity["subscription"])
        )
        members = self._rebinder.members.items_of(entities, self._rebinder.entity["member"])
        changes = self._update(NO_INTEGERS, _NO_POINTS, _NO_POINTS, members, self._k_nearest.memberships_of(entities))
        for entity in entities.tolist():
            self._order.remove(entity)
            self._rebound.discard(entity)
        self._kind[entities] = _UNUSED
        self._entities.release(entities)
        return self._combine(ended, changes)

    def add_group(self, count: int = 1) -> int:
        """Add a group for subscriptions to `count` sources each."""
        group = int(self._groups.allocate(1)[0])
        self._rebinder.members.add_tree(group)
        self._rebinder.subscriptions.add_tree(group)
        self._subscribed = grow(self._subscribed, group + 1)
        self._subscribed[group] = 0
        if count > 1:
            self._k_nearest.add_group(group, count)
        return group

    def remove_group(self, group: int) -> None:
        """Remove a group and its memberships. Raises ConflictError while it has subscriptions."""
        count = self._subscribed[self._known_groups(group)][0]
        if count:
            raise ConflictError(f"group {group} has {count} subscriptions", hint="remove them first")
        if group in self._k_nearest:
            self._k_nearest.remove_group(group)
        self._update(NO_INTEGERS, _NO_POINTS, _NO_POINTS, self._rebinder.members.members_of(group))
        self._subscribed[group] = -1
        self._groups.release(np.array([group]))

    def positions(self, entities: npt.ArrayLike) -> tuple[Floats, Floats]:
        rows = self._rebinder.entity[self._known(entities)]
        return rows["x"], rows["y"]

    def groups_of(self, source: int) -> Int32s:
        """The groups for one source that a source is in, ascending."""
        members = self._rebinder.members.items_of(self._known(source), self._rebinder.entity["member"])
        return np.sort(self._rebinder.members.item["group"][members])

    # Subscriptions

    def add_subscriptions(
        self,
        subscribers: npt.ArrayLike,
        groups: npt.ArrayLike,
        rules: npt.ArrayLike,
        radii: npt.ArrayLike = np.inf,
        *,
        suspended: npt.ArrayLike = False,
        previous: npt.ArrayLike = -1,
    ) -> tuple[Int32s, BindingChanges]:
        """Add subscriptions, each with a rule and (except for NEAREST) a radius in metres. Returns their handles.

        `suspended` tells which of them not to bind yet. `previous` are sources from before a restart: subscriptions
        with ANYOF keep them if they still qualify. Groups for several sources need the rule NEAREST.
        """
        rules, radii = np.asarray(rules, np.int8), np.asarray(radii, np.float64)
        if not np.isin(rules, list(Rule)).all() or np.isnan(radii).any():
            raise InputError("invalid rule or radius", hint="pass a Rule and a number of metres")
        columns = np.broadcast_arrays(self._known(subscribers), self._known_groups(groups), rules, radii)
        subscriptions = self._rebinder.add_subscriptions(*columns)
        np.add.at(self._subscribed, columns[1], 1)
        for row in self._rows_of_several(columns[1]).tolist():
            self._k_nearest.add(int(subscriptions[row]), int(columns[0][row]), int(columns[1][row]))
        to_bind = ~np.broadcast_to(np.asarray(suspended, np.bool_), subscriptions.shape)
        kept = np.broadcast_to(np.asarray(previous, np.int32), subscriptions.shape)[to_bind]
        kept = np.where(self._are_known(kept), kept, -1).astype(np.int32)
        return subscriptions, self._resume(subscriptions[to_bind], kept)

    def remove_subscriptions(self, subscriptions: npt.ArrayLike) -> BindingChanges:
        handles = np.unique(self._known_subscriptions(subscriptions))
        several_changes = self._count(self._k_nearest.remove(self._k_nearest.select(handles)))
        changes = self._combine(several_changes, self._rebinder.suspend(handles))
        np.subtract.at(self._subscribed, self._rebinder.subscriptions.item["group"][handles], 1)
        self._rebinder.subscriptions.remove(handles, self._rebinder.entity["subscription"])
        return changes

    def resume(self, subscriptions: npt.ArrayLike) -> BindingChanges:
        """Bind suspended subscriptions. Others stay as they are."""
        handles = np.unique(self._known_subscriptions(subscriptions))
        suspended = handles[self._rebinder.subscriptions.item["entry"][handles] < 0]
        return self._resume(suspended, np.full(len(suspended), -1, np.int32))

    def suspend(self, subscriptions: npt.ArrayLike) -> BindingChanges:
        """Unbind subscriptions until they are resumed."""
        handles = np.unique(self._known_subscriptions(subscriptions))
        several_changes = self._count(self._k_nearest.set_suspended(self._k_nearest.select(handles), suspended=True))
        return self._combine(several_changes, self._rebinder.suspend(handles))

    def source_of(self, subscriptions: npt.ArrayLike) -> Int32s:
        """The source of each subscription, or -1 (also for subscriptions to several sources)."""
        return self._rebinder.sources_of(self._known_subscriptions(subscriptions))

    def sources_of_several(self, subscription: int) -> list[int]:
        """The sources of a subscription to several sources, by id."""
        return self._k_nearest.sources_of(subscription)

    def bound_to(self, source: int) -> list[int]:
        """The subscriptions that are bound to a source."""
        groups = self.groups_of(source).tolist()
        candidates = [self._rebinder.subscriptions.members_of(group) for group in groups]
        subscriptions: Int32s = np.concatenate([NO_INTEGERS, *candidates])
        bound: list[int] = subscriptions[self._rebinder.sources_of(subscriptions) == source].tolist()
        return bound + self._k_nearest.bound_to(source)

    # Moves and demand

    def move(
        self,
        entities: npt.ArrayLike,
        x: npt.ArrayLike,
        y: npt.ArrayLike,
        *,
        leaving: Memberships = NO_MEMBERSHIPS,
        joining: Memberships = NO_MEMBERSHIPS,
    ) -> BindingChanges:
        """Move entities; at the same time sources leave and join groups. The last of several moves of an entity counts.

        Existing memberships stay, missing ones are ignored. No source may leave and join the same group.
        """
        handles, points = self._known(entities), checked_points(x, y)
        if len(handles) != len(points[0]):
            raise InputError(
                f"{len(handles)} entities and {len(points[0])} points", hint="pass a point for each entity"
            )
        members, leaving_several = self._members(leaving)
        new, joining_several = self._new_members(joining)
        return self._update(handles, *points, members, leaving_several, new, joining_several)

    @property
    def bound_sources(self) -> Int32s:
        """The sources with bindings."""
        return np.flatnonzero(self._rebinder.bindings > 0).astype(np.int32)

    def demand_changes(self) -> list[tuple[int, bool]]:
        """Sources that got their first binding (True) or lost their last since the last call, by handle."""
        if not self._rebound:
            return []
        sources = np.array(sorted(self._rebound), np.int32)
        self._rebound.clear()
        is_bound = self._rebinder.bindings[sources] > 0
        changed = is_bound != self._was_bound[sources]
        self._was_bound[sources] = is_bound
        return list(zip(sources[changed].tolist(), is_bound[changed].tolist(), strict=True))

    def _add_entities(self, x: npt.ArrayLike, y: npt.ArrayLike, kind: int) -> Int32s:
        points = checked_points(x, y)
        entities = self._entities.allocate(len(points[0]))
        self._rebinder.set_entities(entities, *points)
        self._kind = grow(self._kind, self._entities.count)
        self._kind[entities] = kind
        return entities

    def _update(
        self,
        entities: Int32s,
        x: Floats,
        y: Floats,
        leaving: Int32s,
        leaving_several: Sequence[Membership] = (),
        joining: tuple[Int32s, Int32s] = (NO_INTEGERS, NO_INTEGERS),
        joining_several: Sequence[Membership] = (),
    ) -> BindingChanges:
        """Move, then update subscriptions to several sources, then the others: ANYOF counts the bindings of all.

        `leaving` and `joining` are for groups for one source, the others for groups for several.
        """
        moved, marks = self._rebinder.move(entities, x, y)
        several_changes = self._count(self._k_nearest.update(entities, leaving_several, joining_several))
        return self._combine(several_changes, self._rebinder.rebind(moved, marks, leaving, *joining))

    def _resume(self, subscriptions: Int32s, previous: Int32s) -> BindingChanges:
        to_several = self._k_nearest.select(subscriptions)
        several_changes = self._count(self._k_nearest.set_suspended(to_several, suspended=False))
        if to_several:
            single = ~np.isin(subscriptions, to_several)
            subscriptions, previous = subscriptions[single], previous[single]
        return self._combine(several_changes, self._rebinder.resume(subscriptions, previous))

    def _count(self, changes: BindingChanges) -> BindingChanges:
        """Count bindings to several sources, which the rebinder does not know of."""
        np.subtract.at(self._rebinder.bindings, changes.old[changes.old >= 0], 1)
        np.add.at(self._rebinder.bindings, changes.new[changes.new >= 0], 1)
        return changes

    def _combine(self, first: BindingChanges, second: BindingChanges) -> BindingChanges:
        """Both, ANYOF last."""
        if not len(first) and not len(second):
            return second
        pairs = (first.subscription, second.subscription), (first.old, second.old), (first.new, second.new)
        subscription, old, new = (np.concatenate(pair) for pair in pairs)
        order = np.argsort(self._rebinder.rule[subscription] == Rule.ANYOF, kind="stable")
        self._rebound.update(old[old >= 0].tolist(), new[new >= 0].tolist())
        return BindingChanges(subscription[order], old[order], new[order])

    # Checks

    def _rows_of_several(self, groups: Int32s) -> npt.NDArray[np.intp]:
        """The rows of groups for several sources."""
        several = [group for group in np.unique(groups).tolist() if group in self._k_nearest]
        return np.flatnonzero(np.isin(groups, several)) if several else np.empty(0, np.intp)

    def _members(self, pairs: Memberships) -> tuple[Int32s, list[Membership]]:
        """Of these pairs: the handles of existing memberships, and the pairs whose groups are for several sources."""
        if pairs is NO_MEMBERSHIPS:
            return NO_INTEGERS, []
        columns = np.stack(np.broadcast_arrays(self._known(pairs[0]), self._known_groups(pairs[1])))
        members = self._rebinder.members.find(columns[0], columns[1], self._rebinder.entity["member"])
        return np.unique(members[members >= 0]), self._of_several(columns)

    def _new_members(self, pairs: Memberships) -> tuple[tuple[Int32s, Int32s], list[Membership]]:
        """Of these pairs: those that are not memberships yet, and those whose groups are for several sources."""
        if pairs is NO_MEMBERSHIPS:
            return (NO_INTEGERS, NO_INTEGERS), []
        columns = np.stack(np.broadcast_arrays(self._known_sources(pairs[0]), self._known_groups(pairs[1])))
        several = self._of_several(columns)
        columns = np.unique(np.delete(columns, self._rows_of_several(columns[1]), axis=1), axis=1)
        is_new = self._rebinder.members.find(columns[0], columns[1], self._rebinder.entity["member"]) < 0
        return (columns[0, is_new], columns[1, is_new]), several

    def _of_several(self, columns: Int32s) -> list[Membership]:
        return [(source, group) for source, group in columns[:, self._rows_of_several(columns[1])].T.tolist()]

    def _are_known(self, entities: Int32s) -> npt.NDArray[np.bool_]:
        known = (entities >= 0) & (entities < self._entities.count)
        known[known] = self._kind[entities[known]] != _UNUSED
        return known

    def _known(self, entities: npt.ArrayLike) -> Int32s:
        handles = np.atleast_1d(np.asarray(entities, np.int32))
        return _checked("entity", handles, self._entities.count, lambda h: self._kind[h] != _UNUSED)

    def _known_sources(self, sources: npt.ArrayLike) -> Int32s:
        handles = self._known(sources)
        if len(others := handles[self._kind[handles] != _SOURCE]):
            raise InputError(f"entity {others[0]} is not a source", hint="add it with add_sources")
        return handles

    def _known_groups(self, groups: npt.ArrayLike) -> Int32s:
        handles = np.atleast_1d(np.asarray(groups, np.int32))
        return _checked("group", handles, self._groups.count, lambda h: self._subscribed[h] >= 0)

    def _known_subscriptions(self, subscriptions: npt.ArrayLike) -> Int32s:
        handles = np.atleast_1d(np.asarray(subscriptions, np.int32))
        item = self._rebinder.subscriptions.item
        return _checked("subscription", handles, self._rebinder.subscriptions.count, lambda h: item["entity"][h] >= 0)


def checked_points(x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Points as arrays. Raises InputError for NaN, and where squares of distances would overflow."""
    points = np.atleast_1d(np.asarray(x, np.float64)), np.atleast_1d(np.asarray(y, np.float64))
    for name, values in zip("xy", points, strict=True):
        if not np.abs(values).max(initial=0.0) <= _MAX_COORDINATE:
            raise InputError(f"coordinate beyond {_MAX_COORDINATE:g}", where=name, hint="check points with the space")
    if points[0].shape != points[1].shape:
        raise InputError(f"{len(points[0])} x and {len(points[1])} y", hint="pass both for each point")
    return points


def _checked(what: str, handles: Int32s, count: int, is_used: Callable[[Int32s], npt.NDArray[np.bool_]]) -> Int32s:
    """Raises NotFoundError for the first handle that is not in use."""
    known = (handles >= 0) & (handles < count)
    if known.all():
        known = is_used(handles)
    if not known.all():
        raise NotFoundError(f"{what} {handles[np.argmin(known)]} does not exist", hint="it may have been removed")
    return handles
