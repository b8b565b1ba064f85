"""Single facts about the watch: who is bound to whom after which change."""

from __future__ import annotations

import numpy as np
import pytest

from roamcast.bind.nearest.reference import Listener, Source, rebind
from roamcast.bind.nearest.watch import Changes, Rule, Watch
from roamcast.errors import ConflictError, InputError, NotFoundError
from roamcast.space import GEOGRAPHIC, PLANAR

NONE = -1


def rows(changes: Changes) -> list[tuple[int, int, int]]:
    columns = changes.subscription.tolist(), changes.old.tolist(), changes.new.tolist()
    return list(zip(*columns, strict=True))


class World:
    """Sources on a line, by id and x, in one group; one subscriber at 0."""

    def __init__(self, **sources: float) -> None:
        self.watch = Watch(PLANAR)
        self.group = self.watch.add_group()
        handles = self.watch.add_sources(list(sources), list(sources.values()), [0.0] * len(sources)).tolist()
        self.source = dict(zip(sources, handles, strict=True))
        self.watch.join(handles, self.group)
        self.subscriber = int(self.watch.add_subscribers(0.0, 0.0)[0])

    def subscribe(self, rule: Rule, radius: float = np.inf, **options: object) -> int:
        handles, _ = self.watch.subscribe(self.subscriber, self.group, rule, radius, **options)  # type: ignore[arg-type]
        return int(handles[0])

    def bound(self, subscription: int) -> str | None:
        names = {handle: id for id, handle in self.source.items()}
        return names.get(int(self.watch.bound(subscription)[0]))


@pytest.mark.parametrize(("rule", "chosen"), [(Rule.NEAREST, "b"), (Rule.NEAROF, "b"), (Rule.REMOTEOF, "a")])
def test_each_rule_chooses_by_distance(rule: Rule, chosen: str) -> None:
    """The nearest, the nearest within the radius, the farthest within the radius."""
    world = World(a=3.0, b=2.0, c=9.0)
    assert world.bound(world.subscribe(rule, 5.0)) == chosen


@pytest.mark.parametrize("rule", [Rule.NEAROF, Rule.REMOTEOF, Rule.ANYOF])
def test_a_source_exactly_at_the_radius_is_within_it(rule: Rule) -> None:
    """A distance equal to the radius qualifies, the next larger one does not."""
    world = World(a=5.0)
    subscription = world.subscribe(rule, 5.0)
    assert world.bound(subscription) == "a"
    world.watch.move(world.source["a"], np.nextafter(5.0, 6.0), 0.0)
    assert world.bound(subscription) is None


@pytest.mark.parametrize("rule", [Rule.NEAREST, Rule.NEAROF, Rule.REMOTEOF])
def test_of_equally_distant_sources_the_lower_id_wins(rule: Rule) -> None:
    """Whatever the order in which they came."""
    world = World(m=4.0, b=-4.0, z=4.0)
    subscription = world.subscribe(rule, 5.0)
    assert world.bound(subscription) == "b"
    world.source["a"] = int(world.watch.add_sources(["a"], -4.0, 0.0)[0])
    world.watch.join(world.source["a"], world.group)
    assert world.bound(subscription) == "a"


def test_nothing_qualifies_in_an_empty_group() -> None:
    """A subscription is bound as soon as the first source comes, however far away it is."""
    world = World(a=1e9)
    other = world.watch.add_group()
    subscription = int(world.watch.subscribe(world.subscriber, other, Rule.NEAREST)[0][0])
    assert world.bound(subscription) is None
    world.watch.join(world.source["a"], other)
    assert world.bound(subscription) == "a"


def test_a_removed_source_is_replaced() -> None:
    """The change tells the source that is gone and the one that takes its place."""
    world = World(a=1.0, b=2.0)
    subscription = world.subscribe(Rule.NEAREST)
    assert rows(world.watch.remove(world.source["a"])) == [(subscription, world.source["a"], world.source["b"])]


def test_a_source_that_leaves_the_group_is_given_up_and_taken_back() -> None:
    """Its position does not change."""
    world = World(a=1.0, b=2.0)
    subscription = world.subscribe(Rule.NEAREST)
    a, b = world.source["a"], world.source["b"]
    assert rows(world.watch.leave(a, world.group)) == [(subscription, a, b)]
    assert rows(world.watch.join(a, world.group)) == [(subscription, b, a)]


def test_a_source_that_moves_far_away_loses_its_subscriptions() -> None:
    """One jump, much farther than anything reaches."""
    world = World(a=1.0, b=2.0)
    subscription = world.subscribe(Rule.NEAREST)
    world.watch.move(world.source["a"], 1e7, 1e7)
    assert world.bound(subscription) == "b"


def test_anyof_keeps_its_source_while_it_qualifies() -> None:
    """A nearer one with a lower id does not matter; only the radius does."""
    world = World(b=3.0)
    subscription = world.subscribe(Rule.ANYOF, 5.0)
    world.source["a"] = int(world.watch.add_sources(["a"], 1.0, 0.0)[0])
    world.watch.join(world.source["a"], world.group)
    assert world.bound(subscription) == "b"
    world.watch.move(world.source["b"], 5.1, 0.0)
    assert world.bound(subscription) == "a"


def test_anyof_takes_the_source_with_most_bindings_then_the_lower_id() -> None:
    """Bindings of all groups and rules count."""
    world = World(a=4.0, b=3.0, c=2.0)
    assert world.bound(world.subscribe(Rule.ANYOF, 5.0)) == "a"
    elsewhere = world.watch.add_group()
    world.watch.join(world.source["c"], elsewhere)
    for _ in range(2):
        world.watch.subscribe(world.subscriber, elsewhere, Rule.NEAREST)
    assert world.bound(world.subscribe(Rule.ANYOF, 5.0)) == "c"


def test_anyof_counts_bindings_it_was_told_of() -> None:
    """Those of subscriptions that are not the watch's own."""
    world = World(a=1.0, b=2.0)
    world.watch.weigh(world.source["b"], 1)
    assert world.bound(world.subscribe(Rule.ANYOF, 5.0)) == "b"
    assert world.watch.bindings(world.source["b"]).tolist() == [2]


def test_anyof_keeps_the_source_it_had_before_a_restart() -> None:
    """If that still qualifies; otherwise it chooses."""
    world = World(a=1.0, b=2.0, c=9.0)
    assert world.bound(world.subscribe(Rule.ANYOF, 5.0, bound=world.source["b"])) == "b"
    assert world.bound(world.subscribe(Rule.ANYOF, 5.0, bound=world.source["c"])) == "b"
    assert world.watch.bindings(world.source["b"]).tolist() == [2]


def test_asleep_is_bound_to_nothing() -> None:
    """Sleeping gives up the source, waking finds the right one of then."""
    world = World(a=1.0, b=-3.0)
    subscription = world.subscribe(Rule.NEAREST, awake=False)
    assert world.bound(subscription) is None
    assert rows(world.watch.wake(subscription)) == [(subscription, NONE, world.source["a"])]
    assert rows(world.watch.wake(subscription)) == []
    assert rows(world.watch.sleep(subscription)) == [(subscription, world.source["a"], NONE)]
    assert rows(world.watch.move(world.subscriber, -3.0, 0.0)) == []
    assert rows(world.watch.wake(subscription)) == [(subscription, NONE, world.source["b"])]


def test_of_several_moves_in_a_batch_the_last_counts() -> None:
    """Only the net change is told."""
    world = World(a=0.0, b=10.0)
    subscription = world.subscribe(Rule.NEAREST)
    there_and_back = world.watch.move([world.subscriber] * 2, [10.0, 1.0], [0.0, 0.0])
    assert rows(there_and_back) == []
    through = world.watch.move([world.subscriber] * 3, [2.0, 1.0, 9.0], [0.0, 0.0, 0.0])
    assert rows(through) == [(subscription, world.source["a"], world.source["b"])]


def test_an_entity_may_be_source_and_subscriber() -> None:
    """It is then its own nearest source, wherever it goes."""
    world = World(a=0.0, b=10.0)
    handles, _ = world.watch.subscribe(world.source["b"], world.group, Rule.NEAREST)
    assert rows(world.watch.move(world.source["b"], 0.0, 0.0)) == [(handles[0], world.source["b"], world.source["a"])]
    assert rows(world.watch.move(world.source["b"], 0.1, 0.0)) == [(handles[0], world.source["a"], world.source["b"])]


@pytest.mark.parametrize("radius", [3.0, 6.0, 100.0])
@pytest.mark.parametrize("rule", list(Rule))
@pytest.mark.parametrize("walker", ["subscriber", "a", "b"])
def test_a_walk_in_small_steps_is_followed(walker: str, rule: Rule, radius: float) -> None:
    """Past the others and back; after each step the binding is the right one."""
    world = World(a=-2.0, b=3.0, c=9.0)
    x = {"subscriber": 0.0, "a": -2.0, "b": 3.0, "c": 9.0}
    subscription = world.subscribe(rule, radius)
    bound = world.bound(subscription)
    for at in np.concatenate([np.arange(0, 14, 0.1), np.arange(14, -14, -0.3), np.arange(-14, 14, 0.7)]).tolist():
        x[walker] = at
        world.watch.move(world.subscriber if walker == "subscriber" else world.source[walker], at, 0.0)
        sources = {id: Source(x[id], 0.0, frozenset({0})) for id in "abc"}
        listener = Listener(x["subscriber"], 0.0, 0, rule, radius)
        bound = rebind(PLANAR, sources, {0: listener}, {0: bound})[0]
        assert world.bound(subscription) == bound


def test_the_nearest_is_found_across_the_date_line() -> None:
    """Longitudes 179.9 and -179.9 are neighbours."""
    watch = Watch(GEOGRAPHIC)
    group = watch.add_group()
    sources = watch.add_sources(["west", "east"], [170.0, -179.9], [0.0, 0.0])
    watch.join(sources, group)
    subscriptions, _ = watch.subscribe(watch.add_subscribers(179.9, 0.0), group, Rule.NEAREST)
    assert watch.bound(subscriptions).tolist() == [sources[1]]


def test_handles_are_used_again() -> None:
    """What had a handle before leaves nothing behind."""
    world = World(a=1.0)
    subscription = world.subscribe(Rule.NEAREST)
    world.watch.remove([world.source["a"], world.subscriber])
    source, subscriber = world.watch.add_sources(["b"], 0.0, 0.0), world.watch.add_subscribers(0.0, 0.0)
    assert {int(source[0]), int(subscriber[0])} == {world.source["a"], world.subscriber}
    again, changes = world.watch.subscribe(subscriber, world.group, Rule.NEAREST)
    assert (again.tolist(), rows(changes)) == ([subscription], [])
    assert world.watch.groups_of(int(source[0])).tolist() == []
    assert world.watch.bindings(source).tolist() == [0]


def test_a_group_is_removed_when_nobody_listens() -> None:
    """Its sources are in one group less; with subscriptions it is refused."""
    world = World(a=1.0)
    subscription = world.subscribe(Rule.NEAREST)
    with pytest.raises(ConflictError, match="1 subscription"):
        world.watch.remove_group(world.group)
    world.watch.unsubscribe(subscription)
    world.watch.remove_group(world.group)
    assert world.watch.groups_of(world.source["a"]).tolist() == []
    with pytest.raises(NotFoundError):
        world.watch.join(world.source["a"], world.group)


def test_unknown_handles_are_refused_and_nothing_is_changed() -> None:
    """One stranger in a batch is enough."""
    world = World(a=0.0, b=10.0)
    subscription = world.subscribe(Rule.NEAREST)
    for stranger in (-1, 99):
        with pytest.raises(NotFoundError, match=f"entity {stranger} "):
            world.watch.move([world.subscriber, stranger], [9.0, 9.0], [0.0, 0.0])
        with pytest.raises(NotFoundError, match=f"subscription {stranger} "):
            world.watch.sleep([subscription, stranger])
        with pytest.raises(NotFoundError, match=f"group {stranger} "):
            world.watch.subscribe(world.subscriber, stranger, Rule.NEAREST)
    assert world.bound(subscription) == "a"


def test_bad_input_is_refused() -> None:
    """Taken ids, entities without an id in a group, points that are none, columns of different lengths, no rule."""
    world = World(a=0.0)
    with pytest.raises(ConflictError, match="'a' is taken"):
        world.watch.add_sources(["b", "a"], [0.0, 0.0], [0.0, 0.0])
    with pytest.raises(InputError, match="no source"):
        world.watch.join(world.subscriber, world.group)
    for x in (np.nan, np.inf, 1e200):
        with pytest.raises(InputError, match="1e\\+150"):
            world.watch.move(world.subscriber, x, 0.0)
    with pytest.raises(InputError, match="1 entities and 2 points"):
        world.watch.move(world.subscriber, [0.0, 1.0], [0.0, 1.0])
    with pytest.raises(InputError, match="no such rule"):
        world.watch.subscribe(world.subscriber, world.group, 4)


def test_meanwhile_all_have_moved_and_nothing_is_chosen() -> None:
    """What is weighed while entities move counts for what they then choose."""
    world = World(a=1.0, b=2.0, c=3.0)
    subscription = world.subscribe(Rule.ANYOF, 50.0)
    seen: list[float] = []

    def meanwhile() -> None:
        seen.extend(world.watch.where(world.source["a"])[0])
        assert world.bound(subscription) == "a"
        world.watch.weigh(world.source["c"], 1)

    world.watch.move(world.source["a"], 99.0, 0.0, meanwhile=meanwhile)
    assert seen == [99.0]
    assert world.bound(subscription) == "c"


def test_only_sources_have_bindings() -> None:
    """Who has no id is not bound to, and is not counted or weighed."""
    world = World(a=1.0)
    with pytest.raises(InputError, match="no source"):
        world.watch.bindings(world.subscriber)
    with pytest.raises(InputError, match="no source"):
        world.watch.weigh(world.subscriber, 1)
