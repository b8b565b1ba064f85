"""Bindings that stay in force after the binder has ended them."""

from __future__ import annotations

from roamcast.bind.lcesm.messages import Bound, StateChanged, SubscriptionState, Unbound
from roamcast.node.control.held_bindings import HeldBindings

ACTIVE, INACTIVE, STOP = SubscriptionState.ACTIVE, SubscriptionState.INACTIVE, SubscriptionState.STOP


def always(*_: str) -> bool:
    return True


def never(*_: str) -> bool:
    return False


def test_a_binding_is_held_until_its_replacement_is_confirmed() -> None:
    """The new one begins at once."""
    held = HeldBindings(lambda source: source == "home")
    effects = [Bound("q", "b4@south", 5), Unbound("q", "home", 5)]
    assert held.apply(effects, 5, never) == [Bound("q", "b4@south", 5)]
    assert not held.is_cut_off("q")
    assert held.release_replaced(["q"], 9) == [Unbound("q", "home", 9)]
    assert held.release_replaced(["q"], 10) == []


def test_a_confirmed_replacement_ends_it_at_once() -> None:
    held = HeldBindings(always)
    effects = [Bound("q", "b4@south", 5), Unbound("q", "home", 5)]
    assert held.apply(effects, 5, always) == effects


def test_what_is_bound_again_goes_on() -> None:
    """As if nothing had happened, whether it was held for a replacement or for a silent node."""
    held = HeldBindings(never)
    held.apply([Bound("q", "b4@south", 5), Unbound("q", "b1@west", 5)], 5, never)
    back = held.apply([Bound("q", "b1@west", 7), Unbound("q", "b4@south", 7)], 7, never)
    assert back == []
    assert held.sources_of("q") == ("b4@south",)


def test_the_last_source_of_a_silent_node_stays() -> None:
    """So does the state. It ends when another source is bound."""
    held = HeldBindings(always)
    effects = [Unbound("q", "b4@south", 5), StateChanged("q", INACTIVE, "no source", 5)]
    assert held.apply(effects, 5, always) == []
    assert held.is_cut_off("q")
    assert held.cut_off_by("south") == ["q"]
    assert held.cut_off_by("west") == []
    effects = [Bound("q", "b1@west", 8), StateChanged("q", ACTIVE, None, 8)]
    assert held.apply(effects, 8, never) == [*effects, Unbound("q", "b4@south", 8)]
    assert list(held) == []


def test_a_silent_node_that_is_back_continues_the_binding() -> None:
    held = HeldBindings(always)
    held.apply([Unbound("q", "b4@south", 5), StateChanged("q", INACTIVE, "no source", 5)], 5, always)
    effects = [Bound("q", "b4@south", 8), StateChanged("q", ACTIVE, None, 8)]
    assert held.apply(effects, 8, never) == [StateChanged("q", ACTIVE, None, 8)]
    assert list(held) == []


def test_a_stopped_subscription_holds_nothing() -> None:
    """Its life-control does not hold any more."""
    held = HeldBindings(always)
    held.apply([Unbound("q", "b4@south", 5)], 5, always)
    stop = StateChanged("q", STOP, "not in room A", 8)
    assert held.apply([stop], 8, never) == [Unbound("q", "b4@south", 8), stop]


def test_only_the_end_of_a_removed_subscription_is_left() -> None:
    held = HeldBindings(always)
    held.apply([Unbound("q", "b4@south", 5)], 5, always)
    assert held.release("q", 6) == [Unbound("q", "b4@south", 6)]
    assert held.release("q", 7) == []


def test_a_silent_node_that_is_back_does_not_end_what_is_held_for_a_replacement() -> None:
    """It has a nearer source, which it has not confirmed yet."""
    held = HeldBindings(never)
    held.apply([Unbound("q", "b4@south", 5), StateChanged("q", INACTIVE, "no source", 5)], 5, always)
    held.apply([Bound("q", "b5@south", 8), StateChanged("q", ACTIVE, None, 8)], 8, never)
    assert held.cut_off_by("south") == []
    assert held.release_replaced(["q"], 9) == [Unbound("q", "b4@south", 9)]


def test_one_of_two_silent_nodes_is_back() -> None:
    """Only its sources are known to be gone."""
    held = HeldBindings(always)
    held.apply([Unbound("q", "b4@south", 5), Unbound("q", "b1@west", 5)], 5, always)
    assert held.release("q", 8, "south") == [Unbound("q", "b4@south", 8)]
    assert held.sources_of("q") == ("b1@west",)
    assert held.is_cut_off("q")


def test_after_a_restart_a_binding_is_held_for_an_earlier_replacement() -> None:
    """The node of that has not confirmed anything yet."""
    held = HeldBindings(never)
    assert held.apply([Unbound("q", "home", 5)], 5, never, lambda _: ("b4@south",)) == []
    assert held.release_replaced(["q"], 9) == [Unbound("q", "home", 9)]


def test_a_binding_stays_if_its_replacement_goes_while_its_node_is_silent() -> None:
    """It was held until the replacement is confirmed; now there is none, and what the silent node has comes later."""
    held = HeldBindings(never, lambda _, source: source == "s@quiet")
    held.apply([Unbound("q", "s@quiet", 1), Bound("q", "t@other", 1)], 1, never)
    gone = [Unbound("q", "t@other", 2), StateChanged("q", INACTIVE, "gone", 2)]
    assert held.apply(gone, 2, never) == gone[:1]
    assert held.is_cut_off("q")
    assert held.release_replaced(["q"], 3) == []
