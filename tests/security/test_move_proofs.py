"""Move proofs: only who has the token can make the next one."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.errors import InputError
from roamcast.security.move_proofs import EPOCHS, LAST_EPOCH, MoveProof, MoveProofChain, follows, is_far, is_valid

ANN = "north.pier.ann"
CHAIN = MoveProofChain("token")
HASH = hashlib.sha256(b"token").hexdigest()

few = st.integers(1, 3000)


@given(few)
def test_the_home_can_verify_a_proof(epoch: int) -> None:
    """With the hash of the token, for its name and epoch only."""
    proof = MoveProof.parse(str(CHAIN.proof(ANN, epoch)))
    assert is_valid(proof, ANN, epoch, HASH)
    assert not is_valid(proof, ANN, epoch + 1, HASH)
    assert not is_valid(proof, "north.pier.ben", epoch, HASH)
    assert not is_valid(proof, ANN, epoch, HASH[::-1])


@given(few, few)
def test_a_link_follows_those_of_earlier_epochs_only(one: int, other: int) -> None:
    """So an office that has seen one epoch can verify the next, and cannot make it."""
    first, second = CHAIN.proof(ANN, one).link, CHAIN.proof(ANN, other).link
    assert follows(second, other, first, one) == (one <= other <= one + 1_000)


def test_another_tokens_link_does_not_follow() -> None:
    """Nor does a made-up one."""
    link = CHAIN.proof(ANN, 5).link
    assert not follows(MoveProofChain("another").proof(ANN, 6).link, 6, link, 5)
    assert not follows(b"\0" * 32, 6, link, 5)
    assert not follows(hashlib.sha256(link).digest(), 6, link, 5)


def test_every_link_is_the_hash_of_the_next() -> None:
    """Also at the links that are kept."""
    for epoch in (1, 998, 999, 1000, 1001, EPOCHS - 1, EPOCHS + 1, 2 * EPOCHS - 1):
        assert hashlib.sha256(CHAIN.proof(ANN, epoch + 1).link).digest() == CHAIN.proof(ANN, epoch).link


@pytest.mark.parametrize("epoch", [0, -1, LAST_EPOCH + 1])
def test_invalid_epochs_have_no_proof(epoch: int) -> None:
    """And no proof is valid for them."""
    with pytest.raises(InputError, match="invalid epoch"):
        CHAIN.proof(ANN, epoch)
    assert not is_valid(CHAIN.proof(ANN, 1), ANN, epoch, HASH)


@pytest.mark.parametrize("epoch", [EPOCHS, EPOCHS + 1, 10**15, LAST_EPOCH])
def test_a_token_is_never_used_up(epoch: int) -> None:
    """After a chain ends another begins, which only the home can verify at first."""
    chain = MoveProofChain("token")
    proof = chain.proof(ANN, epoch)
    assert is_valid(proof, ANN, epoch, HASH)
    assert not is_valid(proof, ANN, epoch - 1, HASH)
    assert not is_valid(proof, ANN, epoch - EPOCHS, HASH)


@pytest.mark.parametrize(("epoch", "far"), [(5, False), (1_005, False), (1_006, True), (EPOCHS + 1, True)])
def test_only_the_home_verifies_far_epochs(epoch: int, far: bool) -> None:
    """Other offices do not hash long for callers that may have no token."""
    link = CHAIN.proof(ANN, 5).link
    assert is_far(epoch, 5) == far
    assert follows(CHAIN.proof(ANN, epoch).link, epoch, link, 5) != far


@pytest.mark.parametrize("text", ["", "a.b.c", "00.00.00", "zz" * 32 + "." + "00" * 32 + "." + "00" * 32, "00" * 32])
def test_malformed_proofs_are_refused(text: str) -> None:
    """With a hint."""
    with pytest.raises(InputError) as caught:
        MoveProof.parse(text)
    assert caught.value.hint
