"""Arrivals: epochs, repetition, late arrivals, and how the mailbox is found."""

from __future__ import annotations

import pytest
from post import ANN, BEN, EVE, PostNetwork, served

from roamcast.deliver.messages import LocationQuery, MailboxClaim
from roamcast.deliver.requests import Arrive, Arrived
from roamcast.errors import ElsewhereError, InputError, NotFoundError


@pytest.fixture
def post() -> PostNetwork:
    post = PostNetwork()
    post.register(ANN, BEN, EVE)
    return post


def test_arrive_is_idempotent_within_an_epoch(post: PostNetwork) -> None:
    post.arrive("south", ANN, 2)
    post.carry()
    assert post.tell("south", Arrive(ANN, 2)) == [Arrived(ANN, 2)]


def test_arrival_without_epoch_takes_the_next_one(post: PostNetwork) -> None:
    """As reported by the previous office or the home."""
    post.arrive("south", ANN, previous="north")
    post.carry()
    assert served(post, ANN) == [("south", 2)]
    post.arrive("west", ANN)
    assert isinstance(post.only(LocationQuery), LocationQuery)
    post.carry()
    assert served(post, ANN) == [("west", 3)]
    post.arrive("west", ANN)
    assert served(post, ANN) == [("west", 4)]


@pytest.mark.parametrize("epoch", [1, 2])
def test_late_arrival_is_refused_at_once(post: PostNetwork, epoch: int) -> None:
    """With the office and epoch of the subscriber."""
    post.arrive("south", ANN, 3)
    post.carry()
    for domain in ("north", "south"):
        with pytest.raises(ElsewhereError) as caught:
            post.arrive(domain, ANN, epoch)
        assert (caught.value.office, caught.value.epoch) == ("south", 3)


def test_later_arrival_at_the_same_office_replaces_the_claim(post: PostNetwork) -> None:
    """Whichever claim is granted, the later epoch counts; an earlier arrival is refused."""
    post.arrive("south", ANN, 2, "north")
    claim = post.only(MailboxClaim)
    post.lose()
    post.arrive("south", ANN, 5, "north")
    with pytest.raises(ElsewhereError):
        post.arrive("south", ANN, 4)
    post.lose()
    post.tell("north", claim)
    post.carry()
    assert served(post, ANN) == [("south", 5)]
    home = post.stores["north"].last_known(ANN)
    assert (home.office, home.epoch) == ("south", 5)


def test_arrival_tries_the_previous_office_too() -> None:
    """The office's record is stale and the home is down."""
    wide = PostNetwork(("north", "south", "west", "east"))
    wide.register(ANN)
    for domain in ("west", "south", "east"):
        wide.arrive(domain, ANN)
        wide.carry()
    wide.dead |= {"south", "north"}
    wide.arrive("west", ANN, 9, "east")
    wide.carry()
    assert served(wide, ANN) == [("east", 4)]
    wide.ring("west")
    wide.carry()
    assert served(wide, ANN) == [("west", 9)]


def test_unknown_subscriber_cannot_arrive(post: PostNetwork) -> None:
    """Its home refuses at once; elsewhere the claim has no effect."""
    with pytest.raises(NotFoundError):
        post.arrive("north", "north.pier.nobody")
    post.arrive("south", "north.pier.nobody")
    post.carry()
    assert served(post, "north.pier.nobody") == []


@pytest.mark.parametrize("epoch", [0, -1, 2**63 - 1])
def test_epoch_out_of_bounds_is_refused(post: PostNetwork, epoch: int) -> None:
    """Epochs start at 1 and leave room for a next one."""
    with pytest.raises(InputError):
        post.arrive("south", ANN, epoch)
