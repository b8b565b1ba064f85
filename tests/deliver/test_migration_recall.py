"""A home recalls its subscriber, and trusts only the subscriber about where it is."""

from __future__ import annotations

import pytest
from post import ANN, BEN, PostNetwork

from roamcast.deliver.messages import AddressUpdate, BundleReceipt, LocationReply, OfficeInput
from roamcast.deliver.port import LastKnownOffice
from roamcast.deliver.requests import Arrive
from roamcast.errors import ElsewhereError


@pytest.fixture
def post() -> PostNetwork:
    """Ann, of north, is at south in epoch 9; north knows only epoch 2."""
    post = PostNetwork()
    post.register(ANN, BEN)
    post.arrive("south", ANN, 2, "north")
    post.carry()
    post.arrive("south", ANN, 9)
    post.lose()
    return post


def is_at_home(post: PostNetwork) -> bool:
    tenure = post.stores["north"].tenures([ANN]).get(ANN)
    return tenure is not None and tenure.complete and not post.stores["south"].tenures([ANN])


def test_recall_does_not_give_up(post: PostNetwork) -> None:
    """The mailbox returns although it was in a later epoch than the home knew."""
    post.tell("north", Arrive(ANN, is_recall=True))
    post.carry()
    assert is_at_home(post)


def test_recall_continues_after_a_crash(post: PostNetwork) -> None:
    """Also without an answer, and if the subscriber arrives at home meanwhile."""
    post.tell("north", Arrive(ANN, is_recall=True))
    post.lose()
    post.tell("north", Arrive(ANN, 5, move_proof="signed"))
    post.lose()
    post.restart("north")
    post.ring("north")
    post.carry()
    assert is_at_home(post)


def test_other_claims_give_up(post: PostNetwork) -> None:
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
def test_home_stores_only_proven_locations(post: PostNetwork, lie: OfficeInput) -> None:
    """Other reports may be tried, and are forgotten."""
    post.tell("north", Arrive(ANN))  # so that the home wants to know
    post.tell("north", lie)
    stored = post.stores["north"].last_known(ANN)
    assert stored is not None
    assert (stored.office, stored.epoch) == ("south", 2)


def test_home_stores_nothing_about_unknown_subscribers(post: PostNetwork) -> None:
    """The name can still be registered."""
    name = "north.pier.cleo"
    post.tell("north", AddressUpdate(name, "west", 7, True))
    assert post.stores["north"].last_known(name) is None
    post.register(name)
    assert post.stores["north"].last_known(name) == LastKnownOffice(name, "north", 1, past_epoch=1)


def test_home_refuses_past_epochs_after_a_late_update(post: PostNetwork) -> None:
    """The subscriber's own proof counts."""
    post.ring("south")
    post.carry()
    with pytest.raises(ElsewhereError):
        post.tell("north", Arrive(ANN, 9))
