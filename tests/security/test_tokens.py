"""PublishProofs of sources that publish away from home."""

from __future__ import annotations

import pytest

from roamcast.security.tokens import PublishProof, hash_token, new_token

TOKEN = "a-token-of-a-source"
MADE = PublishProof.create(TOKEN, "north", "cam", "south")


def test_home_knows_the_passport_of_its_source() -> None:
    """By the hash of the token alone."""
    assert MADE.is_valid("south", hash_token(TOKEN))


@pytest.mark.parametrize(
    ("passport", "domain", "token"),
    [
        (MADE, "west", TOKEN),
        (MADE, "south", "another-token"),
        (MADE._replace(id="car"), "south", TOKEN),
        (MADE._replace(home="west"), "south", TOKEN),
        (MADE._replace(proof="ü"), "south", TOKEN),
    ],
    ids=["another domain", "another token", "another source", "another home", "no proof"],
)
def test_what_was_made_for_something_else_is_not_good(passport: PublishProof, domain: str, token: str) -> None:
    """A passport is of one source, with one token, for one domain."""
    assert not passport.is_valid(domain, hash_token(token))


def test_passport_is_told_from_a_token() -> None:
    """As a text it comes back as it was; no token looks like one."""
    assert PublishProof.parse(str(MADE)) == MADE
    assert not any(PublishProof.parse(new_token()) for _ in range(100))
    assert TOKEN not in str(MADE)
