"""Signatures between offices, and requests that are valid once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roamcast.security.signing import Nonces, SignedRequest, body_digest, encrypt, mac, new_key, signature

SIGNED = SignedRequest("north", "south", "http://north", "POST", "/v1/office/messages", body_digest(b"{}"), "session.1")


def test_a_signature_covers_every_part() -> None:
    """Sender, receiver, URL, method, path, body and nonce; and the key."""
    key = new_key()
    known = signature(key, SIGNED)
    for field in SignedRequest._fields:
        assert signature(key, SIGNED._replace(**{field: "x"})) != known
    assert signature(new_key(), SIGNED) != known


@given(st.lists(st.text(max_size=3), max_size=3), st.lists(st.text(max_size=3), max_size=3))
def test_parts_are_not_confused(one: list[str], other: list[str]) -> None:
    """Two lists of parts have the same code only if they are equal."""
    assert (mac(b"key", *one) == mac(b"key", *other)) == (one == other)


def test_a_secret_is_decrypted_with_the_same_key_and_context_only() -> None:
    key, secret = new_key(), new_key()
    closed = encrypt(key, secret, "once")
    assert closed != secret
    assert encrypt(key, closed, "once") == secret
    assert encrypt(key, closed, "twice") != secret
    assert encrypt(new_key(), closed, "once") != secret


def test_a_nonce_is_valid_once_in_its_session() -> None:
    """In any order; not in another session, so not after a restart."""
    receiver, sender = Nonces(), Nonces()
    first, second = sender.next_for(receiver.session), sender.next_for(receiver.session)
    assert [receiver.accept("north", nonce) for nonce in (second, first, first, second)] == [
        True,
        True,
        False,
        False,
    ]
    assert receiver.accept("west", first)
    assert not Nonces().accept("north", first)


def test_a_nonce_far_behind_the_latest_is_refused() -> None:
    """So that memory is bounded."""
    receiver = Nonces()
    sender = "0" * 32
    numbers = 10**12, 10**12 - 9_999, 10**12 - 10_000
    assert [receiver.accept("north", f"{receiver.session}.{sender}.{n}") for n in numbers] == [True, True, False]


def test_a_restarted_sender_is_accepted_at_once() -> None:
    """Its numbers restart, and none of its earlier requests is valid again."""
    receiver, before, after = Nonces(), Nonces(), Nonces()
    earlier = [before.next_for(receiver.session) for _ in range(3)]
    assert all(receiver.accept("north", nonce) for nonce in earlier)
    assert receiver.accept("north", after.next_for(receiver.session))
    assert not any(receiver.accept("north", nonce) for nonce in earlier)


def test_too_many_restarts_of_a_sender_end_the_session() -> None:
    """So that nothing is valid twice although memory is bounded."""
    receiver = Nonces()
    session = receiver.session
    nonces = [Nonces().next_for(session) for _ in range(1_001)]
    assert [receiver.accept("north", nonce) for nonce in nonces] == [True] * 1_000 + [False]
    assert receiver.session != session
    assert not receiver.accept("north", nonces[0])
    assert receiver.accept("north", Nonces().next_for(receiver.session))


def test_malformed_nonces_are_refused() -> None:
    receiver = Nonces()
    good = Nonces().next_for(receiver.session)
    for text in ("", ".", receiver.session, f"{receiver.session}.1", good[:-1], f"{good[:-1]}-1", f"{good[:-1]}²"):
        assert not receiver.accept("north", text)
