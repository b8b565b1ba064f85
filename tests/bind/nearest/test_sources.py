"""Single facts about nearest sources: which bindings follow from which change."""

from __future__ import annotations

import numpy as np
import pytest
from nearest_reference import ReferenceSource, ReferenceSubscription, binding_counts, join, leave, rebind

from roamcast.bind.nearest.sources import BindingChanges, NearestSources, Rule
from roamcast.errors import ConflictError, InputError, NotFoundError
from roamcast.space import GEOGRAPHIC, PLANAR

NONE = -1


def rows(changes: BindingChanges) -> list[tuple[int, int, int]]:
    columns = changes.subscription.tolist(), changes.old.tolist(), changes.new.tolist()
    return list(zip(*columns, strict=True))


class Line:
    """Sources on a line, by id and x, in one group; one subscriber at 0."""

    def __init__(self, **sources: float) -> None:
        self.nearest = NearestSources(PLANAR)
        self.group = self.nearest.add_group()
        handles = self.nearest.add_sources(list(sources), list(sources.values()), [0.0] * len(sources)).tolist()
        self.source = dict(zip(sources, handles, strict=True))
        join(self.nearest, handles, self.group)
        self.subscriber = int(self.nearest.add_subscribers(0.0, 0.0)[0])

    def subscribe(self, rule: Rule, radius: float = np.inf, **options: object) -> int:
        handles, _ = self.nearest.add_subscriptions(self.subscriber, self.group, rule, radius, **options)  # type: ignore[arg-type]
        return int(handles[0])

    def bound(self, subscription: int) -> str | None:
        names = {handle: id for id, handle in self.source.items()}
        return names.get(int(self.nearest.source_of(subscription)[0]))


@pytest.mark.parametrize(("rule", "chosen"), [(Rule.NEAREST, "b"), (Rule.NEAROF, "b"), (Rule.REMOTEOF, "a")])
def test_each_rule_chooses_by_distance(rule: Rule, chosen: str) -> None:
    """The nearest, the nearest within the radius, the farthest within the radius."""
    line = Line(a=3.0, b=2.0, c=9.0)
    assert line.bound(line.subscribe(rule, 5.0)) == chosen


@pytest.mark.parametrize("rule", [Rule.NEAROF, Rule.REMOTEOF, Rule.ANYOF])
def test_a_source_exactly_at_the_radius_is_within_it(rule: Rule) -> None:
    """A distance equal to the radius qualifies, the next larger one does not."""
    line = Line(a=5.0)
    subscription = line.subscribe(rule, 5.0)
    assert line.bound(subscription) == "a"
    line.nearest.move(line.source["a"], np.nextafter(5.0, 6.0), 0.0)
    assert line.bound(subscription) is None


@pytest.mark.parametrize("rule", [Rule.NEAREST, Rule.NEAROF, Rule.REMOTEOF])
def test_of_equally_distant_sources_the_lower_id_wins(rule: Rule) -> None:
    """Whatever the order in which they were added."""
    line = Line(m=4.0, b=-4.0, z=4.0)
    subscription = line.subscribe(rule, 5.0)
    assert line.bound(subscription) == "b"
    line.source["a"] = int(line.nearest.add_sources(["a"], -4.0, 0.0)[0])
    join(line.nearest, line.source["a"], line.group)
    assert line.bound(subscription) == "a"


def test_a_subscription_to_an_empty_group_is_not_bound() -> None:
    """A subscription is bound as soon as the first source joins, however far away it is."""
    line = Line(a=1e9)
    other = line.nearest.add_group()
    subscription = int(line.nearest.add_subscriptions(line.subscriber, other, Rule.NEAREST)[0][0])
    assert line.bound(subscription) is None
    join(line.nearest, line.source["a"], other)
    assert line.bound(subscription) == "a"


def test_a_removed_source_is_replaced() -> None:
    """The change has the removed source and its replacement."""
    line = Line(a=1.0, b=2.0)
    subscription = line.subscribe(Rule.NEAREST)
    assert rows(line.nearest.remove(line.source["a"])) == [(subscription, line.source["a"], line.source["b"])]


def test_a_source_that_leaves_and_rejoins_a_group_is_unbound_and_bound() -> None:
    """Its position does not change."""
    line = Line(a=1.0, b=2.0)
    subscription = line.subscribe(Rule.NEAREST)
    a, b = line.source["a"], line.source["b"]
    assert rows(leave(line.nearest, a, line.group)) == [(subscription, a, b)]
    assert rows(join(line.nearest, a, line.group)) == [(subscription, b, a)]


def test_a_source_that_moves_far_away_loses_its_subscriptions() -> None:
    """One jump, much farther than anything reaches."""
    line = Line(a=1.0, b=2.0)
    subscription = line.subscribe(Rule.NEAREST)
    line.nearest.move(line.source["a"], 1e7, 1e7)
    assert line.bound(subscription) == "b"


def test_anyof_keeps_its_source_while_it_qualifies() -> None:
    """Nearer sources with lower ids do not matter, only the radius."""
    line = Line(b=3.0)
    subscription = line.subscribe(Rule.ANYOF, 5.0)
    line.source["a"] = int(line.nearest.add_sources(["a"], 1.0, 0.0)[0])
    join(line.nearest, line.source["a"], line.group)
    assert line.bound(subscription) == "b"
    line.nearest.move(line.source["b"], 5.1, 0.0)
    assert line.bound(subscription) == "a"


def test_anyof_chooses_the_source_with_most_bindings_then_the_lower_id() -> None:
    """Bindings of all groups and rules count."""
    line = Line(a=4.0, b=3.0, c=2.0)
    assert line.bound(line.subscribe(Rule.ANYOF, 5.0)) == "a"
    elsewhere = line.nearest.add_group()
    join(line.nearest, line.source["c"], elsewhere)
    for _ in range(2):
        line.nearest.add_subscriptions(line.subscriber, elsewhere, Rule.NEAREST)
    assert line.bound(line.subscribe(Rule.ANYOF, 5.0)) == "c"


def test_anyof_counts_bindings_to_several_sources() -> None:
    """Those of subscriptions to the two nearest sources."""
    line = Line(a=9.0, b=1.0, c=2.0)
    several = line.nearest.add_group(2)
    join(line.nearest, [line.source["b"], line.source["c"]], several)
    handles, changes = line.nearest.add_subscriptions(line.subscriber, several, Rule.NEAREST)
    gained = [(int(handles[0]), NONE, line.source[id]) for id in "bc"]
    assert rows(changes) == gained
    assert line.bound(line.subscribe(Rule.ANYOF, 50.0)) == "b"
    assert binding_counts(line.nearest, line.source["b"]) == [2]
    assert line.nearest.sources_of_several(int(handles[0])) == [line.source["b"], line.source["c"]]
    assert rows(line.nearest.remove(line.source["c"])) == [(int(handles[0]), line.source["c"], NONE)]


def test_anyof_keeps_the_source_it_had_before_a_restart() -> None:
    """If it still qualifies; otherwise it chooses again."""
    line = Line(a=1.0, b=2.0, c=9.0)
    assert line.bound(line.subscribe(Rule.ANYOF, 5.0, previous=line.source["b"])) == "b"
    assert line.bound(line.subscribe(Rule.ANYOF, 5.0, previous=line.source["c"])) == "b"
    assert binding_counts(line.nearest, line.source["b"]) == [2]


def test_a_suspended_subscription_is_not_bound() -> None:
    """Suspending unbinds, resuming binds to the source that is right then."""
    line = Line(a=1.0, b=-3.0)
    subscription = line.subscribe(Rule.NEAREST, suspended=True)
    assert line.bound(subscription) is None
    assert rows(line.nearest.resume(subscription)) == [(subscription, NONE, line.source["a"])]
    assert rows(line.nearest.resume(subscription)) == []
    assert rows(line.nearest.suspend(subscription)) == [(subscription, line.source["a"], NONE)]
    assert rows(line.nearest.move(line.subscriber, -3.0, 0.0)) == []
    assert rows(line.nearest.resume(subscription)) == [(subscription, NONE, line.source["b"])]


def test_of_several_moves_in_a_batch_the_last_counts() -> None:
    """Only the net change is reported."""
    line = Line(a=0.0, b=10.0)
    subscription = line.subscribe(Rule.NEAREST)
    there_and_back = line.nearest.move([line.subscriber] * 2, [10.0, 1.0], [0.0, 0.0])
    assert rows(there_and_back) == []
    through = line.nearest.move([line.subscriber] * 3, [2.0, 1.0, 9.0], [0.0, 0.0, 0.0])
    assert rows(through) == [(subscription, line.source["a"], line.source["b"])]


def test_an_entity_may_be_source_and_subscriber() -> None:
    """It is its own nearest source, wherever it goes."""
    line = Line(a=0.0, b=10.0)
    handles, _ = line.nearest.add_subscriptions(line.source["b"], line.group, Rule.NEAREST)
    assert rows(line.nearest.move(line.source["b"], 0.0, 0.0)) == [(handles[0], line.source["b"], line.source["a"])]
    assert rows(line.nearest.move(line.source["b"], 0.1, 0.0)) == [(handles[0], line.source["a"], line.source["b"])]


@pytest.mark.parametrize("radius", [3.0, 6.0, 100.0])
@pytest.mark.parametrize("rule", list(Rule))
@pytest.mark.parametrize("walker", ["subscriber", "a", "b"])
def test_bindings_are_right_after_each_small_step(walker: str, rule: Rule, radius: float) -> None:
    """A walk past the others and back."""
    line = Line(a=-2.0, b=3.0, c=9.0)
    x = {"subscriber": 0.0, "a": -2.0, "b": 3.0, "c": 9.0}
    subscription = line.subscribe(rule, radius)
    bound = line.bound(subscription)
    for at in np.concatenate([np.arange(0, 14, 0.1), np.arange(14, -14, -0.3), np.arange(-14, 14, 0.7)]).tolist():
        x[walker] = at
        line.nearest.move(line.subscriber if walker == "subscriber" else line.source[walker], at, 0.0)
        sources = {id: ReferenceSource(x[id], 0.0, frozenset({0})) for id in "abc"}
        subscription_ = ReferenceSubscription(x["subscriber"], 0.0, 0, rule, radius)
        bound = rebind(PLANAR, sources, {0: subscription_}, {0: bound})[0]
        assert line.bound(subscription) == bound


def test_the_nearest_source_is_found_across_the_antimeridian() -> None:
    """Longitudes 179.9 and -179.9 are neighbours."""
    nearest = NearestSources(GEOGRAPHIC)
    group = nearest.add_group()
    sources = nearest.add_sources(["west", "east"], [170.0, -179.9], [0.0, 0.0])
    join(nearest, sources, group)
    subscriptions, _ = nearest.add_subscriptions(nearest.add_subscribers(179.9, 0.0), group, Rule.NEAREST)
    assert nearest.source_of(subscriptions).tolist() == [sources[1]]


def test_handles_are_used_again() -> None:
    """Nothing of the previous owner is left."""
    line = Line(a=1.0)
    subscription = line.subscribe(Rule.NEAREST)
    line.nearest.remove([line.source["a"], line.subscriber])
    source, subscriber = line.nearest.add_sources(["b"], 0.0, 0.0), line.nearest.add_subscribers(0.0, 0.0)
    assert {int(source[0]), int(subscriber[0])} == {line.source["a"], line.subscriber}
    again, changes = line.nearest.add_subscriptions(subscriber, line.group, Rule.NEAREST)
    assert (again.tolist(), rows(changes)) == ([subscription], [])
    assert line.nearest.groups_of(int(source[0])).tolist() == []
    assert binding_counts(line.nearest, source) == [0]


def test_a_group_with_subscriptions_is_not_removed() -> None:
    """Without subscriptions it is, and its sources leave it."""
    line = Line(a=1.0)
    subscription = line.subscribe(Rule.NEAREST)
    with pytest.raises(ConflictError, match="1 subscription"):
        line.nearest.remove_group(line.group)
    line.nearest.remove_subscriptions(subscription)
    line.nearest.remove_group(line.group)
    assert line.nearest.groups_of(line.source["a"]).tolist() == []
    with pytest.raises(NotFoundError):
        join(line.nearest, line.source["a"], line.group)


def test_unknown_handles_raise_and_change_nothing() -> None:
    """One unknown handle in a batch is enough."""
    line = Line(a=0.0, b=10.0)
    subscription = line.subscribe(Rule.NEAREST)
    for unknown in (-1, 99):
        with pytest.raises(NotFoundError, match=f"entity {unknown} "):
            line.nearest.move([line.subscriber, unknown], [9.0, 9.0], [0.0, 0.0])
        with pytest.raises(NotFoundError, match=f"subscription {unknown} "):
            line.nearest.suspend([subscription, unknown])
        with pytest.raises(NotFoundError, match=f"group {unknown} "):
            line.nearest.add_subscriptions(line.subscriber, unknown, Rule.NEAREST)
    assert line.bound(subscription) == "a"


def test_invalid_input_raises() -> None:
    """Ids in use, subscribers in groups, invalid points, columns of different lengths, unknown rules."""
    line = Line(a=0.0)
    with pytest.raises(ConflictError, match="'a' is already in use"):
        line.nearest.add_sources(["b", "a"], [0.0, 0.0], [0.0, 0.0])
    with pytest.raises(InputError, match="not a source"):
        join(line.nearest, line.subscriber, line.group)
    for x in (np.nan, np.inf, 1e200):
        with pytest.raises(InputError, match="1e\\+150"):
            line.nearest.move(line.subscriber, x, 0.0)
    with pytest.raises(InputError, match="1 entities and 2 points"):
        line.nearest.move(line.subscriber, [0.0, 1.0], [0.0, 1.0])
    with pytest.raises(InputError, match="invalid rule"):
        line.nearest.add_subscriptions(line.subscriber, line.group, 4)


def test_anyof_counts_bindings_to_several_sources_of_the_same_move() -> None:
    """The two nearest change before anyof() chooses."""
    line = Line(a=1.0, b=2.0, c=3.0)
    several = line.nearest.add_group(2)
    join(line.nearest, [line.source["a"], line.source["c"]], several)
    subscription = line.subscribe(Rule.ANYOF, 50.0)
    handles, _ = line.nearest.add_subscriptions(line.subscriber, several, Rule.NEAREST, suspended=True)
    line.nearest.resume(handles)
    assert line.bound(subscription) == "a"
    line.nearest.move(line.source["a"], 99.0, 0.0)
    assert line.bound(subscription) == "c"


def test_demand_changes_are_reported_once() -> None:
    """A source is demanded while a subscription is bound to it."""
    line = Line(a=1.0, b=2.0)
    subscription = line.subscribe(Rule.NEAREST)
    assert line.nearest.demand_changes() == [(line.source["a"], True)]
    assert line.nearest.demand_changes() == []
    line.nearest.move(line.subscriber, 9.0, 0.0)
    assert sorted(line.nearest.demand_changes()) == [(line.source["a"], False), (line.source["b"], True)]
    line.nearest.remove_subscriptions(subscription)
    assert line.nearest.bound_sources.tolist() == []
