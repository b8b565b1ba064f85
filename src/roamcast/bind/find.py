"""Finding sources: the fast watch and the slower `nearest(k)` behind one face that speaks of ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.bind.agents import Choice
from roamcast.bind.hot import Run
from roamcast.bind.kernels.layout import Integers, Rule
from roamcast.bind.registry import Moves, Registry
from roamcast.bind.several import Found, Several
from roamcast.bind.watch import Changes, Watch
from roamcast.space import Space

__all__ = ["Finder", "Found", "Wish"]


class Wish(NamedTuple):
    """A subscription as the finder sees it. `kept` is the source that it had before a restart."""

    subscription: str
    subscriber: int
    group: int
    awake: bool
    kept: str | None = None


class Finder:
    """Keeps awake subscriptions bound. Whatever changes something returns whose sources changed.

    Found are those of `nearest(k)` first, then the others, `anyof()` last: in that order they were chosen, after all
    that is lost was given up; `anyof()` counts the bindings there are by then.
    """

    def __init__(self, space: Space, registry: Registry, *, lanes: int = 1, run: Run = map) -> None:
        self._registry = registry
        self._watch = Watch(space, lanes=lanes, run=run)
        self._several = Several(space, registry)
        self._choices: dict[int, Choice] = {}
        self._watchers: dict[str, int] = {}
        self._subscriptions: list[str] = []  # by watcher
        self._anyof: set[int] = set()  # watchers

    def add_sources(self, ids: Sequence[str], x: npt.ArrayLike, y: npt.ArrayLike) -> Integers:
        """Handles of new sources, which are in no group yet."""
        return self._watch.add_sources(ids, x, y)

    def add_subscribers(self, x: npt.ArrayLike, y: npt.ArrayLike) -> Integers:
        """Handles of new subscribers."""
        return self._watch.add_subscribers(x, y)

    def remove(self, entity: int) -> None:
        """It is in no group and has no subscriptions any more."""
        self._watch.remove(entity)

    def add_group(self, choice: Choice) -> int:
        group = self._watch.add_group()
        self._choices[group] = choice
        if choice.count > 1:
            self._several.add_group(group, choice.count)
        return group

    def remove_group(self, group: int) -> None:
        """No subscription listens to it any more."""
        if self._choices.pop(group).count > 1:
            self._several.remove_group(group)
        self._watch.remove_group(group)

    def join(self, pairs: Iterable[tuple[int, int]]) -> list[Found]:
        """Sources, whose positions are known, come to qualify for groups."""
        return self._change_members(pairs, self._several.join, self._watch.join)

    def leave(self, pairs: Iterable[tuple[int, int]]) -> list[Found]:
        """Sources cease to qualify for groups."""
        return self._change_members(pairs, self._several.leave, self._watch.leave)

    def subscribe(self, wishes: Sequence[Wish]) -> list[Found]:
        """New subscriptions. Those with anyof() keep what they had, if they may."""
        several = [wish for wish in wishes if wish.group in self._several]
        for wish in several:
            self._several.subscribe(wish.subscription, wish.subscriber, wish.group)
        found = self._weighed(self._several.wake([wish.subscription for wish in several if wish.awake]))
        single = [wish for wish in wishes if wish.group not in self._several]
        self._watch_for([wish for wish in single if not wish.awake], awake=False)
        return found + self._found(self._watch_for([wish for wish in single if wish.awake], awake=True))

    def unsubscribe(self, ids: Sequence[str]) -> list[Found]:
        found = self._change(ids, self._several.unsubscribe, self._watch.unsubscribe)
        for id in ids:
            self._anyof.discard(self._watchers.pop(id, -1))
        return found

    def wake(self, ids: Sequence[str]) -> list[Found]:
        """Their subscribers' positions are known."""
        return self._change(ids, self._several.wake, self._watch.wake)

    def sleep(self, ids: Sequence[str]) -> list[Found]:
        return self._change(ids, self._several.sleep, self._watch.sleep)

    def move(self, moves: Moves) -> list[Found]:
        """The registry has taken the moves."""
        found = self._weighed(self._several.move(moves.handles))
        return found + self._found(self._watch.move(moves.handles, moves.x, moves.y))

    def _change(
        self,
        ids: Sequence[str],
        several: Callable[[Sequence[str]], list[Found]],
        watch: Callable[[npt.ArrayLike], Changes],
    ) -> list[Found]:
        found = self._weighed(several([id for id in ids if self._several.has(id)]))
        watchers = [self._watchers[id] for id in ids if id in self._watchers]
        return found + self._found(watch(watchers)) if watchers else found

    def _change_members(
        self,
        pairs: Iterable[tuple[int, int]],
        several: Callable[[Iterable[int], int], list[Found]],
        watch: Callable[[npt.ArrayLike, npt.ArrayLike], Changes],
    ) -> list[Found]:
        single: list[tuple[int, int]] = []
        shared: dict[int, list[int]] = {}
        for source, group in pairs:
            if group in self._several:
                shared.setdefault(group, []).append(source)
            else:
                single.append((source, group))
        found = self._weighed([row for group, sources in shared.items() for row in several(sources, group)])
        return found + self._found(watch(*np.array(single).T)) if single else found

    def _watch_for(self, wishes: Sequence[Wish], *, awake: bool) -> Changes:
        if not wishes:
            return Changes.none()
        ids, subscribers, groups, _, kept = zip(*wishes, strict=True)
        choices = [self._choices[group] for group in groups]
        rules, radii = [choice.rule for choice in choices], [choice.radius for choice in choices]
        bound = [-1 if source is None else self._registry.get(source).handle for source in kept]
        watchers, changes = self._watch.subscribe(subscribers, groups, rules, radii, awake=awake, bound=bound)
        self._watchers.update(zip(ids, watchers.tolist(), strict=True))
        self._subscriptions += [""] * (int(watchers.max()) + 1 - len(self._subscriptions))
        for watcher, id, rule in zip(watchers.tolist(), ids, rules, strict=True):
            self._subscriptions[watcher] = id
            if rule is Rule.ANYOF:
                self._anyof.add(watcher)
        return changes

    def _found(self, changes: Changes) -> list[Found]:
        """anyof() last."""
        columns = changes.subscription.tolist(), changes.old.tolist(), changes.new.tolist()
        rows = sorted(zip(*columns, strict=True), key=lambda row: row[0] in self._anyof)
        return [Found(self._subscriptions[watcher], self._named(old), self._named(new)) for watcher, old, new in rows]

    def _named(self, source: int) -> tuple[str, ...]:
        return (self._registry.at(source).id,) if source >= 0 else ()

    def _weighed(self, found: list[Found]) -> list[Found]:
        """Have the watch count bindings that are not its own, for anyof()."""
        weights: Counter[str] = Counter()
        for row in found:
            weights.update(row.found)
            weights.subtract(row.lost)
        if weights:
            sources = [self._registry.get(source).handle for source in weights]
            self._watch.weigh(sources, list(weights.values()))
        return found
