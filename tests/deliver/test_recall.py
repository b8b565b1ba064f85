"""A home calls its subscriber back, and believes nobody but the subscriber about where it is."""

from __future__ import annotations

import pytest
from post import ANN, BEN, Post

from roamcast.deliver.messages import AddressUpdate, BundleReceipt, LocationReply, OfficeInput
from roamcast.deliver.port import RECALL, LastKnownOffice
from roamcast.deliver.requests import Arrive
from roamcast.errors import ElsewhereError


@pytest.fixture
def post() -> Post:
    """Ann, of north, is at south in epoch 9, and north knows only of epoch 2."""
    post = Post()
    post.register(ANN, BEN)
    post.arrive("south", ANN, 2, "north")
    post.carry()
    post.arrive("south", ANN, 9)
    post.lose()
    return post


def is_at_home(post: Post) -> bool:
    tenure = post.stores["north"].tenures([ANN]).get(ANN)
    return tenure is not None and tenure.complete and not post.stores["south"].tenures([ANN])


def test_a_recall_does_not_give_up(post: Post) -> None:
    """The mailbox comes home though it was in a later epoch than home knew."""
    post.tell("north", Arrive(ANN, move_proof=RECALL))
    post.carry()
    assert is_at_home(post)


def test_a_recall_goes_on_after_a_crash(post: Post) -> None:
    """Without an answer too, and whoever arrives at home meanwhile."""
    post.tell("north", Arrive(ANN, move_proof=RECALL))
    post.lose()
    post.tell("north", Arrive(ANN, 5, move_proof="signed"))
    post.lose()
    post.restart("north")
    post.ring("north")
    post.carry()
    assert is_at_home(post)


def test_any_other_claim_comes_too_late(post: Post) -> None:
    """A subscriber that has arrived elsewhere since is not fetched from there."""
    post.tell("north", Arrive(ANN, 5, move_proof="signed"))
    post.carry()
    assert not is_at_home(post)


@pytest.mark.parametrize(
    "lie",
    [
        LocationReply(ANN, "west", 1000),
        BundleReceipt(ANN, (), (), "west", 1000, True),
        BundleReceipt(ANN, (), (), "west", 1000, False),
    ],
    ids=["located", "posted to a friend", "posted"],
)
def test_a_home_keeps_only_what_its_subscriber_warrants(post: Post, lie: OfficeInput) -> None:
    """What others say of where it is may be tried, and is forgotten."""
    post.tell("north", Arrive(ANN))  # so that the home wants to know
    post.tell("north", lie)
    kept = post.stores["north"].last_known(ANN)
    assert kept is not None
    assert (kept.office, kept.epoch) == ("south", 2)


def test_a_home_has_nobody_entered_whom_it_has_not_made(post: Post) -> None:
    """The name can still be registered."""
    name = "north.pier.cleo"
    post.tell("north", AddressUpdate(name, "west", 7, True))
    assert post.stores["north"].last_known(name) is None
    post.register(name)
    assert post.stores["north"].last_known(name) == LastKnownOffice(name, "north", 1, past_epoch=1)


def test_a_home_that_is_told_late_still_refuses_what_is_past(post: Post) -> None:
    """The subscriber's own word counts."""
    post.ring("south")
    post.carry()
    with pytest.raises(ElsewhereError):
        post.tell("north", Arrive(ANN, 9))
