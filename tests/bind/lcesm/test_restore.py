from __future__ import annotations

import pytest
from binding import Node, places, query

from roamcast.bind.lcesm.binder import Binder
from roamcast.bind.lcesm.messages import (
    Activated,
    Bound,
    Effect,
    EntityRegistered,
    SourceDemanded,
    SourceIdle,
    SourceRegistered,
    StateChanged,
    Subscribed,
    SubscriberRegistered,
    Unbound,
)
from roamcast.bind.lcesm.states import SubscriptionState
from roamcast.errors import ConflictError, NotFoundError
from roamcast.model import Position
from roamcast.space import PLANAR

ANY = "Select anyof() Where &location in rang:loc(30)"
LATER = 100


def source(id: str, x: float) -> SourceRegistered:
    return SourceRegistered(id, {}, Position(id, x, 0, 1))


ANN = SubscriberRegistered("ann", {}, Position("ann", 0, 0, 1))
P = Subscribed("p", "ann", query(ANY))


def restore(
    *messages: EntityRegistered | Subscribed,
    bindings: list[Bound] | None = None,
    states: list[StateChanged] | None = None,
) -> tuple[Binder, list[Effect]]:
    binder = Binder(PLANAR, places(stage=(0, 0, 10, 10)))
    return binder, binder.restore(messages, bindings or [], states or [], LATER)


def test_anyof_keeps_its_source() -> None:
    """After a restart nothing is said of what is as before, since when it was."""
    had = [Bound("p", "b", 7)]
    binder, effects = restore(source("a", 1), source("b", 2), ANN, P, bindings=had)
    assert effects == []
    status = binder.status("p")
    assert (status.sources, status.state, status.since) == (("b",), SubscriptionState.ACTIVE, 7)


@pytest.mark.parametrize(("bound", "changed"), [(7, 3), (3, 7)])
def test_since_the_later_of_binding_and_state(bound: int, changed: int) -> None:
    """A subscription is as it is since its last change, be it of its state or of its source."""
    states = [StateChanged("p", SubscriptionState.ACTIVE, None, changed)]
    binder, _ = restore(source("a", 1), ANN, P, bindings=[Bound("p", "a", bound)], states=states)
    assert binder.status("p").since == 7


def test_without_bindings_everything_is_new() -> None:
    """A binder that had nothing says all that is."""
    _, effects = restore(source("a", 1), source("b", 2), ANN, P)
    assert effects == [
        Bound("p", "a", LATER),
        StateChanged("p", SubscriptionState.ACTIVE, None, LATER),
        SourceDemanded("a", LATER),
    ]


def test_a_source_that_no_longer_fits() -> None:
    """What is different is said: another source, and demand."""
    had = [Bound("p", "b", 7)]
    binder, effects = restore(source("a", 1), source("b", 99), ANN, P, bindings=had)
    assert effects == [
        Unbound("p", "b", LATER),
        Bound("p", "a", LATER),
        SourceDemanded("a", LATER),
        SourceIdle("b", LATER),
    ]
    assert binder.status("p").since == LATER


def test_a_source_that_is_gone() -> None:
    """Who was active and has no source is inactive, not new."""
    _, effects = restore(ANN, P, bindings=[Bound("p", "b", 7)])
    assert effects == [
        Unbound("p", "b", LATER),
        StateChanged("p", SubscriptionState.INACTIVE, "no source is registered", LATER),
        SourceIdle("b", LATER),
    ]


def test_an_inactive_subscription_stays_inactive() -> None:
    """A subscription that was looking for a source goes on looking, and takes the next one by `active`."""
    binder, effects = restore(ANN, P, states=[StateChanged("p", SubscriptionState.INACTIVE, "", 5)])
    assert effects == []
    assert binder.agents()[0].inactive == ("p",)
    assert binder.handle(source("a", 1), LATER)[:1] == [Bound("p", "a", LATER)]


def test_a_subscription_that_is_gone() -> None:
    """The bindings of a subscription that is no more are taken back."""
    _, effects = restore(source("a", 1), bindings=[Bound("p", "a", 7)])
    assert effects == [
        Unbound("p", "a", LATER),
        StateChanged("p", SubscriptionState.STOP, "it was removed", LATER),
        SourceIdle("a", LATER),
    ]


def test_life_control_after_a_restart() -> None:
    """A subscription that was stopped and still is has nothing to say."""
    wanted = Subscribed("p", "ann", query(f"{ANY} Life-control #location in box(5, 5, 6, 6)"))
    stopped = [StateChanged("p", SubscriptionState.STOP, "ann is not in box(5, 5, 6, 6)", 5)]
    _, effects = restore(source("a", 1), ANN, wanted, states=stopped)
    assert effects == []


def test_the_match_plan_after_a_restart() -> None:
    """An active subscription of the match plan is activated again only if nobody knew that it was."""
    wanted = Subscribed("p", "ann", query("Select all() Where &terms has (fire)"))
    active = StateChanged("p", SubscriptionState.ACTIVE, None, 5)
    assert restore(ANN, wanted, states=[active])[1] == []
    assert restore(ANN, wanted)[1] == [StateChanged("p", SubscriptionState.ACTIVE, None, LATER), Activated("p", LATER)]


def test_several_sources_after_a_restart() -> None:
    """nearest(k) has what it had."""
    wanted = Subscribed("p", "ann", query("Select Where &location in nearest(2)"))
    had = [Bound("p", "a", 3), Bound("p", "b", 9)]
    binder, effects = restore(source("a", 1), source("b", 2), source("c", 3), ANN, wanted, bindings=had)
    assert effects == []
    assert binder.status("p").since == 9


def test_only_a_new_binder_is_restored() -> None:
    """Restoring into a binder that is in use would mix two pasts."""
    node = Node()
    node.subscriber("ann")
    with pytest.raises(ConflictError, match="in use"):
        node.binder.restore([], [], [], 5)


def test_a_subscription_of_nobody() -> None:
    """A registry that names an unknown subscriber is not restored."""
    with pytest.raises(NotFoundError, match="no subscriber 'ann'"):
        restore(P)


@pytest.mark.parametrize("twice", [source("a", 1), ANN, P], ids=repr)
def test_what_is_there_twice(twice: EntityRegistered | Subscribed) -> None:
    """A registry in which an id comes twice is not restored."""
    with pytest.raises(ConflictError, match="taken"):
        restore(source("a", 1), ANN, P, twice)


def test_a_source_that_is_read_after_the_subscriptions() -> None:
    """Sources may come when subscriptions are known already."""
    binder, effects = restore(ANN, P, source("a", 1), bindings=[Bound("p", "a", 7)])
    assert effects == []
    assert binder.status("p").sources == ("a",)


def test_demand_after_a_restart() -> None:
    """Whether a source is wanted is counted from what was restored."""
    wanted = Subscribed("p", "ann", query("Select Where &location in nearest(2)"))
    binder, _ = restore(source("a", 1), ANN, wanted, bindings=[Bound("p", "a", 3)])
    assert binder.wanted == {"a"}
    assert binder.handle(source("b", 2), LATER) == [Bound("p", "b", LATER), SourceDemanded("b", LATER)]
