"""Publish proofs of sources at nodes of other domains."""

from __future__ import annotations

import pytest

from roamcast.security.tokens import PublishProof, hash_token, new_token

TOKEN = "a-token-of-a-source"
MADE = PublishProof.create(TOKEN, "north", "cam", "south")


def test_the_home_can_verify_a_proof() -> None:
    """With only the hash of the token."""
    assert MADE.is_valid("south", hash_token(TOKEN))


@pytest.mark.parametrize(
    ("proof", "domain", "token"),
    [
        (MADE, "west", TOKEN),
        (MADE, "south", "another-token"),
        (MADE._replace(id="car"), "south", TOKEN),
        (MADE._replace(home="west"), "south", TOKEN),
        (MADE._replace(proof="ü"), "south", TOKEN),
    ],
    ids=["another domain", "another token", "another source", "another home", "no proof"],
)
def test_a_proof_is_for_one_source_token_and_domain(proof: PublishProof, domain: str, token: str) -> None:
    assert not proof.is_valid(domain, hash_token(token))


def test_a_proof_cannot_be_confused_with_a_token() -> None:
    """Its text parses back, and no token parses as a proof."""
    assert PublishProof.parse(str(MADE)) == MADE
    assert not any(PublishProof.parse(new_token()) for _ in range(100))
    assert TOKEN not in str(MADE)
