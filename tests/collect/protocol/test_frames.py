"""Frames and messages: nothing but what was sent is ever decoded."""

from __future__ import annotations

import pytest
from field_vectors import FRAMES, MESSAGES, NOW
from hypothesis import given
from hypothesis import strategies as st
from profiles import thorough

from roamcast.collect.protocol.codec import decode, encode
from roamcast.collect.protocol.encoding import MAX_CONTENT, MAX_IDS
from roamcast.collect.protocol.events import EventId, FieldEvent
from roamcast.collect.protocol.frames import decode_frame, encode_frame
from roamcast.collect.protocol.messages import Handover, Have
from roamcast.errors import InputError

NODES = st.integers(0, (1 << 32) - 2)
EVENTS = st.builds(
    FieldEvent,
    id=st.builds(EventId, NODES, NODES, NODES),
    origin=NODES,
    origin_size=st.integers(1, 65_535),
    born=st.integers(NOW - 10**9, NOW),
    expires=st.integers(NOW, NOW + 10**9),
    content=st.binary(max_size=300),
)


@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_with_a_flipped_bit_is_refused(frame: object) -> None:
    """Every single one."""
    good = encode_frame(frame)  # type: ignore[arg-type]
    for bit in range(8 * len(good)):
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InputError):
            decode_frame(bytes(damaged))


@thorough()
@given(st.binary(max_size=120))
def test_noise_is_refused(noise: bytes) -> None:
    """Also as a message: it is decoded or refused, and does nothing else."""
    with pytest.raises(InputError):
        decode_frame(noise)
    try:
        said = decode(noise, NOW)
    except InputError:
        return
    assert encode(said, NOW)


@pytest.mark.parametrize("said", MESSAGES)
def test_a_truncated_message_is_refused(said: object) -> None:
    whole = encode(said, NOW)  # type: ignore[arg-type]
    for length in range(len(whole)):
        with pytest.raises(InputError):
            decode(whole[:length], NOW)


@thorough()
@given(EVENTS, st.integers(0, 65_535), st.integers(-(10**9), 10**9))
def test_events_survive_another_clock(event: FieldEvent, hops: int, skew: int) -> None:
    """Age and time left are the same on the receiver's clock."""
    read = decode(encode(Handover(event, hops), NOW), NOW + skew)
    assert isinstance(read, Handover)
    assert (read.event.id, read.event.content, read.hops) == (event.id, event.content, hops)
    assert (read.event.born - skew, read.event.expires - skew) == (event.born, event.expires)


def test_long_lists_are_cut_off_and_long_events_are_refused() -> None:
    """A message names the first 64 events."""
    have = decode(encode(Have(1, 1, tuple(EventId(1, 1, n) for n in range(100))), NOW), NOW)
    assert isinstance(have, Have)
    assert [event.number for event in have.events] == list(range(MAX_IDS))
    with pytest.raises(InputError, match="3,501 bytes"):
        encode(Handover(FieldEvent(EventId(1, 1, 1), 1, 1, 0, 0, bytes(MAX_CONTENT + 1)), 1), NOW)
