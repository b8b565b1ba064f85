"""Tests of roamcast.match.kernels.texts: texts collide only by chance, even if an attacker chose them."""

from __future__ import annotations

import numpy as np
import pytest

from roamcast.match.kernels.texts import Texts, hash_seed, hash_texts

SEEDS = [hash_seed(bytes([n])) for n in range(8)]
WORDS = 15


def hashes(terms: list[bytes], seed: np.ndarray) -> np.ndarray:
    end = np.cumsum([len(term) for term in terms])
    start = np.concatenate([[0], end[:-1]])
    found = np.empty(len(terms), np.uint64)
    hash_texts(Texts(np.frombuffer(b"".join(terms), np.uint8), start, end), seed, found)
    return found


def flipped(*bits: int) -> bytes:
    """Return a text of WORDS words with these bits flipped."""
    text = bytearray(b"a" * 8 * WORDS)
    for bit in bits:
        text[bit >> 3] ^= 1 << (bit & 7)
    return bytes(text)


def chains(step: tuple[int, ...], apart: int) -> list[bytes]:
    """Return texts in which the same bits are flipped, or not, relative to each word, in every combination."""
    places = range(0, WORDS - 2, apart)
    return [
        flipped(*(64 * place + bit for k, place in enumerate(places) if n >> k & 1 for bit in step))
        for n in range(1 << len(places))
    ]


@pytest.mark.parametrize("apart", [1, 2])
@pytest.mark.parametrize(
    "step", [(62, 64 + 62, 64 + 30), (62, 64 + 62), (6, 64 + 6), (30, 128 + 62), (62, 128 + 62), (6, 38, 64 + 6)]
)
def test_bit_flips_that_could_cancel_out_do_not_collide(step: tuple[int, ...], apart: int) -> None:
    """For any seed: no two hashes are equal, and the lower bits, which choose a slot, are spread."""
    terms = chains(step, apart)
    for seed in SEEDS:
        found = hashes(terms, seed)
        assert len(np.unique(found)) == len(terms)
        assert np.bincount((found % np.uint64(len(terms))).astype(np.int64)).max() < 16


def test_each_bit_of_a_text_changes_about_half_of_the_hash() -> None:
    """In short and long texts, at every bit; in the lower half, which chooses a slot, and in the upper half."""
    for length in (1, 7, 8, 9, 16, 17, 40):
        one_off = [bytes(i == at >> 3 and 1 << (at & 7) for i in range(length)) for at in range(8 * length)]
        for half in (0xFFFFFFFF, 0xFFFFFFFF << 32):
            changed = [
                (int(h) ^ int(plain)) & half
                for plain, *others in (hashes([bytes(length), *one_off], seed) for seed in SEEDS)
                for h in others
            ]
            ones = [word.bit_count() for word in changed]
            assert 14 < np.mean(ones) < 18
            assert min(ones) > 2


def test_texts_that_end_in_zero_bytes_have_different_hashes() -> None:
    """The length counts, but not like a word."""
    terms = [b"a" * 8 + bytes([n]) + b"\0" * zeros for n in range(256) for zeros in range(12)]
    for seed in SEEDS:
        assert len(np.unique(hashes(terms, seed))) == len(terms)


def test_another_seed_gives_other_hashes() -> None:
    """For each text, even if the seeds differ in a single bit."""
    terms = [f"{n:x}".encode() for n in range(100)]
    for word in range(3):
        other = SEEDS[0].copy()
        other[word] ^= np.uint64(1)
        other.flags.writeable = False
        assert (hashes(terms, SEEDS[0]) != hashes(terms, other)).all()
