"""Which source each subscription is bound to, while all of them move: a batch of moves a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from roamcast.bind.nearest.forest import Handles, grown
from roamcast.bind.nearest.hot import NOTHING, Changes, Hot, Run
from roamcast.bind.nearest.id_order import Order
from roamcast.bind.nearest.kernels.layout import Integers, Rule
from roamcast.errors import ConflictError, InputError, NotFoundError
from roamcast.space import Floats, Space

__all__ = ["NOBODY", "Changes", "Pairs", "Rule", "Watch", "checked_points"]

Pairs: TypeAlias = tuple[npt.ArrayLike, npt.ArrayLike]
"""Sources, and a group of each."""
NOBODY: Final[Pairs] = (NOTHING, NOTHING)

_FARTHEST = 1e150
_NOBODY, _OTHER, _SOURCE = 0, 1, 2  # kinds of entities


class Watch:
    """Keeps each awake subscription bound to the source that its rule chooses, as `space.distance` measures exactly.

    All are known by handles, dense numbers that are used again after removal. An *entity* has a position; a source is
    an entity with an id, which breaks ties; any entity may subscribe. A *group* is the set of sources that qualify for
    a source expression but for their location. A subscription listens to one group by a rule; asleep it is bound to
    nothing. Points have been checked by the space, and are nowhere beyond 1e150.

    Whatever changes something returns the net changes of bindings; bindings are those that brute force chooses
    (`bind.brute.rebind`, with handles as numbers). Unknown handles raise NotFoundError, and nothing is changed.

    With several lanes, large batches are worked on by as many calls through `run` (such as an executor's `map`) at
    once; results do not depend on it. One call at a time otherwise.
    """

    def __init__(self, space: Space, *, lanes: int = 1, run: Run = map) -> None:
        self._hot = Hot(space, lanes, run)
        self._entities, self._groups = Handles(), Handles()
        self._kind: npt.NDArray[np.int8] = np.zeros(0, np.int8)  # by entity
        self._listeners: Integers = np.zeros(0, np.int32)  # by group: subscriptions; -1: no such group
        self._order = Order()

    @property
    def nbytes(self) -> int:
        """The memory of the hot state: positions, bindings, distances and trees."""
        return self._hot.nbytes + self._kind.nbytes + self._listeners.nbytes

    @property
    def searches(self) -> int:
        """How often the sources of a group had to be searched for a subscription."""
        return int(self._hot.watchers.tree["searched"].sum())

    def add_sources(self, ids: Sequence[str], x: npt.ArrayLike, y: npt.ArrayLike) -> Integers:
        """New entities with ids, in no group yet. Raises ConflictError for an id that is taken."""
        self._order.check(ids)
        sources = self.add_subscribers(x, y)
        self._hot.put_sources(sources)
        self._kind[sources] = _SOURCE
        self._order.add(ids, sources.tolist(), self._hot.label)
        return sources

    def add_subscribers(self, x: npt.ArrayLike, y: npt.ArrayLike) -> Integers:
        """New entities without ids."""
        where = checked_points(x, y)
        entities = self._entities.take(len(where[0]))
        self._hot.put_entities(entities, *where)
        self._kind = grown(self._kind, self._entities.count)
        self._kind[entities] = _OTHER
        return entities

    def remove(self, entities: npt.ArrayLike) -> Changes:
        """Remove entities with their memberships and subscriptions."""
        entities = np.unique(self._known(entities))
        ended = self.unsubscribe(self._hot.watchers.items_of(entities, self._hot.entity["watcher"]))
        changes = self._hot.leave(self._hot.members.items_of(entities, self._hot.entity["member"]))
        for entity in entities.tolist():
            self._order.remove(entity)
        self._kind[entities] = _NOBODY
        self._entities.give_back(entities)
        return ended + changes

    def add_group(self) -> int:
        group = int(self._groups.take(1)[0])
        self._hot.members.need_tree(group)
        self._hot.watchers.need_tree(group)
        self._listeners = grown(self._listeners, group + 1)
        self._listeners[group] = 0
        return group

    def remove_group(self, group: int) -> None:
        """Its sources leave it. Raises ConflictError while subscriptions listen to it."""
        count = self._listeners[self._known_groups(group)][0]
        if count:
            raise ConflictError(f"group {group} has {count} subscriptions", hint="remove them first")
        self._hot.leave(self._hot.members.members_of(group))
        self._listeners[group] = -1
        self._groups.give_back(np.array([group]))

    def join(self, sources: npt.ArrayLike, groups: npt.ArrayLike) -> Changes:
        """Sources come to qualify for groups, pair by pair; those that do already stay as they are."""
        return self.move(NOTHING, NOTHING, NOTHING, joining=(sources, groups))

    def leave(self, sources: npt.ArrayLike, groups: npt.ArrayLike) -> Changes:
        """Sources cease to qualify for groups, pair by pair; those that did not stay as they are."""
        return self.move(NOTHING, NOTHING, NOTHING, leaving=(sources, groups))

    def groups_of(self, source: int) -> Integers:
        """The groups that a source is in, ascending."""
        members = self._hot.members.items_of(self._known(source), self._hot.entity["member"])
        return np.sort(self._hot.members.item["tree"][members])

    def subscribe(
        self,
        subscribers: npt.ArrayLike,
        groups: npt.ArrayLike,
        rules: npt.ArrayLike,
        radii: npt.ArrayLike = np.inf,
        *,
        awake: bool = True,
        bound: npt.ArrayLike = -1,
    ) -> tuple[Integers, Changes]:
        """New subscriptions, each with a rule and (but for NEAREST) a radius in metres.

        `bound` names the sources that those with ANYOF had before a restart: they keep them if they may.
        """
        rules, radii = np.asarray(rules, np.int8), np.asarray(radii, np.float64)
        if not np.isin(rules, list(Rule)).all() or np.isnan(radii).any():
            raise InputError("there is no such rule or radius", hint="a rule is a Rule, a radius a number of metres")
        given = np.broadcast_arrays(self._known(subscribers), self._known_groups(groups), rules, radii)
        watchers = self._hot.take(*given)
        np.add.at(self._listeners, given[1], 1)
        if not awake:
            return watchers, Changes.none()
        kept = np.broadcast_to(np.asarray(bound, np.int32), watchers.shape)
        return watchers, self._hot.start(watchers, np.where(self._are_known(kept), kept, -1))

    def unsubscribe(self, subscriptions: npt.ArrayLike) -> Changes:
        watchers = np.unique(self._known_subscriptions(subscriptions))
        changes = self._hot.stop(watchers)
        np.subtract.at(self._listeners, self._hot.watchers.item["tree"][watchers], 1)
        self._hot.watchers.give_back(watchers, self._hot.entity["watcher"])
        return changes

    def wake(self, subscriptions: npt.ArrayLike) -> Changes:
        """They are bound from now on; those that are awake stay as they are."""
        watchers = np.unique(self._known_subscriptions(subscriptions))
        asleep = watchers[self._hot.watchers.item["place"][watchers] < 0]
        return self._hot.start(asleep, np.full(len(asleep), -1, np.int32))

    def sleep(self, subscriptions: npt.ArrayLike) -> Changes:
        """They are bound to nothing until they wake."""
        return self._hot.stop(np.unique(self._known_subscriptions(subscriptions)))

    def move(
        self,
        entities: npt.ArrayLike,
        x: npt.ArrayLike,
        y: npt.ArrayLike,
        *,
        leaving: Pairs = NOBODY,
        joining: Pairs = NOBODY,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Changes:
        """Entities are somewhere else; sources leave and join groups at the same time. Of several moves of one the last
        counts. No source leaves and joins the same group.

        `meanwhile` is called when all are where they go and nothing has been chosen; it may `weigh` sources.
        """
        handles, where = self._known(entities), checked_points(x, y)
        if len(handles) != len(where[0]):
            raise InputError(f"{len(handles)} entities and {len(where[0])} points", hint="give a point for each entity")
        return self._hot.change(handles, *where, self._members(leaving), *self._new(joining), meanwhile)

    def where(self, entities: npt.ArrayLike) -> tuple[Floats, Floats]:
        rows = self._hot.entity[self._known(entities)]
        return rows["x"], rows["y"]

    def bound(self, subscriptions: npt.ArrayLike) -> Integers:
        """The sources of subscriptions, or -1."""
        return self._hot.bound(self._known_subscriptions(subscriptions))

    def bound_to(self, source: int) -> Integers:
        """The subscriptions that are bound to a source."""
        watchers = [self._hot.watchers.members_of(group) for group in self.groups_of(source).tolist()]
        listening: Integers = np.concatenate([NOTHING, *watchers])
        bound: Integers = listening[self._hot.bound(listening) == source]
        return bound

    def bindings(self, sources: npt.ArrayLike) -> Integers:
        """How many subscriptions are bound to each of these sources, with those that it was told of by `weigh`."""
        return self._hot.bindings[self._known_sources(sources)]

    @property
    def wanted(self) -> Integers:
        """The sources with bindings, counted as `bindings` does."""
        return np.flatnonzero(self._hot.bindings > 0).astype(np.int32)

    def weigh(self, sources: npt.ArrayLike, bindings: npt.ArrayLike) -> None:
        """Sources have so many more bindings (or fewer) that are not the watch's own; ANYOF counts them from now on."""
        np.add.at(self._hot.bindings, self._known_sources(sources), np.asarray(bindings, np.int32))

    def _members(self, pairs: Pairs) -> Integers:
        if pairs is NOBODY:
            return NOTHING
        given = np.stack(np.broadcast_arrays(self._known(pairs[0]), self._known_groups(pairs[1])))
        members = self._hot.members.find(given[0], given[1], self._hot.entity["member"])
        return np.unique(members[members >= 0])

    def _new(self, pairs: Pairs) -> tuple[Integers, Integers]:
        """Those that are no members yet."""
        if pairs is NOBODY:
            return NOTHING, NOTHING
        given = np.stack(np.broadcast_arrays(self._known_sources(pairs[0]), self._known_groups(pairs[1])))
        new = np.unique(given, axis=1)
        new = new[:, self._hot.members.find(new[0], new[1], self._hot.entity["member"]) < 0]
        return new[0], new[1]

    def _are_known(self, entities: Integers) -> npt.NDArray[np.bool_]:
        known = (entities >= 0) & (entities < self._entities.count)
        known[known] = self._kind[entities[known]] != _NOBODY
        return known

    def _known(self, entities: npt.ArrayLike) -> Integers:
        handles = np.atleast_1d(np.asarray(entities, np.int32))
        return _checked("entity", handles, self._entities.count, lambda h: self._kind[h] != _NOBODY)

    def _known_sources(self, sources: npt.ArrayLike) -> Integers:
        handles = self._known(sources)
        if len(others := handles[self._kind[handles] != _SOURCE]):
            raise InputError(f"entity {others[0]} is no source", hint="give it an id: add_sources")
        return handles

    def _known_groups(self, groups: npt.ArrayLike) -> Integers:
        handles = np.atleast_1d(np.asarray(groups, np.int32))
        return _checked("group", handles, self._groups.count, lambda h: self._listeners[h] >= 0)

    def _known_subscriptions(self, subscriptions: npt.ArrayLike) -> Integers:
        handles = np.atleast_1d(np.asarray(subscriptions, np.int32))
        item = self._hot.watchers.item
        return _checked("subscription", handles, self._hot.watchers.count, lambda h: item["entity"][h] >= 0)


def checked_points(x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Raises InputError where squares of distances would overflow, or there is no number."""
    where = np.atleast_1d(np.asarray(x, np.float64)), np.atleast_1d(np.asarray(y, np.float64))
    for name, values in zip("xy", where, strict=True):
        if not np.abs(values).max(initial=0.0) <= _FARTHEST:
            raise InputError(f"points lie beyond {_FARTHEST:g}", where=name, hint="check them with the space first")
    if where[0].shape != where[1].shape:
        raise InputError(f"{len(where[0])} x and {len(where[1])} y", hint="give both for each point")
    return where


def _checked(what: str, handles: Integers, count: int, alive: Callable[[Integers], npt.NDArray[np.bool_]]) -> Integers:
    """Raises NotFoundError for the first handle that nobody has."""
    known = (handles >= 0) & (handles < count)
    if known.all():
        known = alive(handles)
    if not known.all():
        raise NotFoundError(f"{what} {handles[np.argmin(known)]} does not exist", hint="it may have been removed")
    return handles
