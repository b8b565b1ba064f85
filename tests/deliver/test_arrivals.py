"""Subscribers that arrive at an office: in which epoch, again, too late, and by which way."""

from __future__ import annotations

import pytest
from post import ANN, BEN, EVE, Post, served

from roamcast.deliver.messages import LocationQuery, MailboxClaim
from roamcast.deliver.requests import Arrive, Arrived
from roamcast.errors import ElsewhereError, InputError, NotFoundError


@pytest.fixture
def post() -> Post:
    post = Post()
    post.register(ANN, BEN, EVE)
    return post


def test_arriving_again_in_the_same_epoch_is_harmless(post: Post) -> None:
    """A repeated request is answered again."""
    post.arrive("south", ANN, 2)
    post.carry()
    assert post.tell("south", Arrive(ANN, 2)) == [Arrived(ANN, 2)]


def test_arriving_without_knowing_the_epoch_takes_the_next(post: Post) -> None:
    """Asked of the previous office, or of the home."""
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
def test_an_arrival_that_is_known_to_be_late_is_refused_at_once(post: Post, epoch: int) -> None:
    """With where the subscriber is, and in which epoch."""
    post.arrive("south", ANN, 3)
    post.carry()
    for domain in ("north", "south"):
        with pytest.raises(ElsewhereError) as caught:
            post.arrive(domain, ANN, epoch)
        assert (caught.value.office, caught.value.epoch) == ("south", 3)


def test_a_later_arrival_at_the_same_office_overtakes_the_claim(post: Post) -> None:
    """Whichever claim is granted, the mailbox is then in the later epoch; an earlier arrival is refused."""
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


def test_an_arrival_tries_every_way() -> None:
    """What the office knows is old and leads to a dead end, the home is dead too: where the subscriber says it was."""
    wide = Post(("north", "south", "west", "east"))
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


def test_who_was_never_created_cannot_arrive(post: Post) -> None:
    """Its home says so at once; elsewhere nothing comes of it."""
    with pytest.raises(NotFoundError):
        post.arrive("north", "north.pier.nobody")
    post.arrive("south", "north.pier.nobody")
    post.carry()
    assert served(post, "north.pier.nobody") == []


@pytest.mark.parametrize("epoch", [0, -1, 2**63 - 1])
def test_an_epoch_that_cannot_be_is_refused(post: Post, epoch: int) -> None:
    """Epochs count from 1, and leave room for a next."""
    with pytest.raises(InputError):
        post.arrive("south", ANN, epoch)
