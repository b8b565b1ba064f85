"""Finding sources: the fast watch and the slower `nearest(k)` behind one face that speaks of subscriptions.

The bindings there are now are kept by these two and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from roamcast.bind.lcesm.agents import Agent
from roamcast.bind.lcesm.registry import Moves, Registry
from roamcast.bind.lcesm.requirements import Requirement
from roamcast.bind.nearest.hot import NOTHING
from roamcast.bind.nearest.k_nearest import Found, Several
from roamcast.bind.nearest.kernels.layout import Integers, Rule
from roamcast.bind.nearest.watch import NOBODY, Changes, Pairs, Watch
from roamcast.space import Space

__all__ = ["Finder", "Found", "Pair"]

Pair: TypeAlias = tuple[int, int]
"""A source and a group, by their handles."""
Had: TypeAlias = Mapping[Requirement, tuple[str, ...]]
"""The sources that subscriptions had before a restart."""


class Finder:
    """Keeps awake subscriptions bound. Whatever changes something returns whose sources changed.

    Found are those of `nearest(k)` first, then the others, `anyof()` last: in that order they were chosen, after all
    that is lost was given up; `anyof()` counts the bindings there are by then.
    """

    def __init__(self, space: Space, registry: Registry, watch: Watch) -> None:
        self._registry = registry
        self._watch = watch
        self._several = Several(space, registry)
        self._rows: list[Requirement | None] = []  # by watcher
        self._lost: list[Integers] = []  # sources that bindings named, since demand was asked for
        self._won: list[Integers] = []

    @property
    def wanted(self) -> Iterator[str]:
        """The sources that a binding names."""
        return map(self._registry.id, self._watch.wanted.tolist())

    def demand(self) -> list[tuple[str, bool]]:
        """The sources that are wanted now and were not, or the other way round, since this was asked last."""
        if not self._lost and not self._won:
            return []
        lost, won = (np.concatenate([NOTHING, *sources]) for sources in (self._lost, self._won))
        self._lost, self._won = [], []
        sources, at = np.unique(np.concatenate([lost, won]), return_inverse=True)
        more = np.bincount(at, np.repeat([-1, 1], [len(lost), len(won)]))
        now = self._watch.bindings(sources)
        changed = np.flatnonzero((now > 0) != (now > more))
        return [(self._registry.id(int(sources[row])), bool(now[row] > 0)) for row in changed.tolist()]

    def sources_of(self, rows: Sequence[Requirement]) -> Iterator[tuple[str, ...]]:
        """The sources of each subscription, by id."""
        watchers = np.fromiter((row.watcher for row in rows), np.int32, len(rows))
        bound = np.full(len(rows), -1, np.int32)
        bound[watchers >= 0] = self._watch.bound(watchers[watchers >= 0])
        for row, source in zip(rows, bound.tolist(), strict=True):
            yield self._named(source) or self._several.sources_of(row)

    def subscriptions_of(self, source: int) -> list[str]:
        """The subscriptions that are bound to a source."""
        single = [self._row(watcher).id for watcher in self._watch.bound_to(source).tolist()]
        return single + self._several.bound_to(self._registry.id(source))

    def add_group(self, count: int) -> int:
        """For subscriptions to so many sources."""
        group = self._watch.add_group()
        if count > 1:
            self._several.add_group(group, count)
        return group

    def remove_group(self, group: int) -> None:
        """No subscription listens to it any more."""
        if group in self._several:
            self._several.remove_group(group)
        self._watch.remove_group(group)

    def subscribe(self, row: Requirement) -> list[Found]:
        """A new subscription, awake if it runs and its subscriber's position is known."""
        several, changes = self._subscribe([row], {})
        return several + self._found(changes)

    def restore(self, rows: Sequence[Requirement], had: Had) -> None:
        """Many new subscriptions. Those with anyof() keep the source that they had, if they may."""
        self._subscribe(rows, had)
        self._lost, self._won = [], []

    def unsubscribe(self, rows: Sequence[Requirement]) -> list[Found]:
        found = self._change(rows, self._several.unsubscribe, self._watch.unsubscribe)
        for row in rows:
            if row.watcher >= 0:
                self._rows[row.watcher], row.watcher = None, -1
        return found

    def wake(self, rows: Sequence[Requirement]) -> list[Found]:
        """Their subscribers' positions are known."""
        return self._change(rows, self._several.wake, self._watch.wake)

    def sleep(self, rows: Sequence[Requirement]) -> list[Found]:
        return self._change(rows, self._several.sleep, self._watch.sleep)

    def change(self, moves: Moves, leaving: Sequence[Pair] = (), joining: Sequence[Pair] = ()) -> list[Found]:
        """The registry has taken the moves. At the same time sources, whose positions are known, cease to qualify for
        groups and come to qualify for others.
        """
        several: list[Found] = []
        shared = ([pair for pair in pairs if pair[1] in self._several] for pairs in (leaving, joining))
        left, come = ([pair for pair in pairs if pair[1] not in self._several] for pairs in (leaving, joining))

        def look_at_several() -> None:
            several.extend(self._weighed(self._several.change(moves.handles, *shared)))

        changes = self._watch.move(
            moves.handles, moves.x, moves.y, leaving=_columns(left), joining=_columns(come), meanwhile=look_at_several
        )
        return several + self._found(changes)

    def _change(
        self,
        rows: Sequence[Requirement],
        several: Callable[[Sequence[Requirement]], list[Found]],
        watch: Callable[[npt.ArrayLike], Changes],
    ) -> list[Found]:
        found = self._weighed(several([row for row in rows if row.watcher < 0]))
        watchers = [row.watcher for row in rows if row.watcher >= 0]
        return found + self._found(watch(watchers)) if watchers else found

    def _subscribe(self, rows: Sequence[Requirement], had: Had) -> tuple[list[Found], Changes]:
        several: dict[bool, list[Requirement]] = {False: [], True: []}  # by whether they are awake
        single: dict[bool, list[Requirement]] = {False: [], True: []}
        placed = self._registry.are_placed(np.array([row.subscriber for row in rows], np.int32))
        for row, is_placed in zip(rows, placed.tolist(), strict=True):
            awake = is_placed and row.runs
            if (group := _agent(row).group.handle) in self._several:
                self._several.subscribe(row, group)
                several[awake].append(row)
            else:
                single[awake].append(row)
        found = self._weighed(self._several.wake(several[True]))
        self._watch_for(single[False], {}, awake=False)
        return found, self._watch_for(single[True], had, awake=True)

    def _watch_for(self, rows: Sequence[Requirement], had: Had, *, awake: bool) -> Changes:
        agents = [_agent(row) for row in rows]
        keep = [at for at, agent in enumerate(agents) if agent.choice.rule is Rule.ANYOF and rows[at] in had]
        bound = np.full(len(rows), -1, np.int32)
        bound[keep] = self._registry.find([had[rows[at]][0] for at in keep])
        watchers, changes = self._watch.subscribe(
            np.array([row.subscriber for row in rows], np.int32),
            np.array([agent.group.handle for agent in agents], np.int32),
            np.array([agent.choice.rule for agent in agents], np.int8),
            np.array([agent.choice.radius for agent in agents], np.float64),
            awake=awake,
            bound=bound,
        )
        self._rows += [None] * (int(watchers.max(initial=-1)) + 1 - len(self._rows))
        for row, watcher in zip(rows, watchers.tolist(), strict=True):
            self._rows[watcher], row.watcher = row, watcher
        return changes

    def _found(self, changes: Changes) -> list[Found]:
        """anyof() last."""
        if len(changes):
            self._lost.append(changes.old[changes.old >= 0])
            self._won.append(changes.new[changes.new >= 0])
        columns = map(self._row, changes.subscription.tolist()), changes.old.tolist(), changes.new.tolist()
        found = [
            Found(row, self._named(old), self._named(new), new >= 0) for row, old, new in zip(*columns, strict=True)
        ]
        return sorted(found, key=lambda change: _agent(change.row).choice.rule is Rule.ANYOF)

    def _row(self, watcher: int) -> Requirement:
        return cast(Requirement, self._rows[watcher])

    def _named(self, source: int) -> tuple[str, ...]:
        return (self._registry.id(source),) if source >= 0 else ()

    def _weighed(self, found: list[Found]) -> list[Found]:
        """Have the watch count bindings that are not its own, for anyof()."""
        if found:
            lost = self._registry.find([source for change in found for source in change.lost])
            won = self._registry.find([source for change in found for source in change.found])
            self._watch.weigh(lost, -1)
            self._watch.weigh(won, 1)
            self._lost.append(lost)
            self._won.append(won)
        return found


def _columns(pairs: Sequence[Pair]) -> Pairs:
    return ([source for source, _ in pairs], [group for _, group in pairs]) if pairs else NOBODY


def _agent(row: Requirement) -> Agent:
    """Only subscriptions that have one come here."""
    return cast(Agent, row.agent)
