"""How often events carry a term, about, in memory that does not grow."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roamcast.match.index.dictionary import encode_terms
from roamcast.match.index.seeds import seed_of
from roamcast.match.kernels.texts import Texts, hash_texts

__all__ = ["TermStatistics"]

Integers = npt.NDArray[np.int64]

_WIDTH: Final = 1 << 16
_SEEDS: Final = (seed_of(b"one"), seed_of(b"two"))  # everywhere the same; a count is all that can be blurred
_MOST: Final = 1 << 24  # counted terms, after which all counts are halved: what was seen lately weighs more


class TermStatistics:
    """A count-min sketch: it never tells less than was counted, and seldom much more. Half a megabyte.

    Whatever terms events carry, it stays as small. Matches do not depend on it; it only helps to choose the term that a
    subscription is posted under. The same events in the same order make the same counts, which nobody stores: a process
    begins with none.
    """

    def __init__(self) -> None:
        self._counts: npt.NDArray[np.uint32] = np.zeros((len(_SEEDS), _WIDTH), np.uint32)

    def count(self, terms: pa.ListArray[Any]) -> None:
        """See the terms of a batch of events, or of a sample of it."""
        lists = encode_terms(terms)
        often = np.bincount(lists.code, minlength=len(lists.texts.start)).astype(np.uint32)
        for row, places in enumerate(_places(lists.texts)):
            np.add.at(self._counts[row], places, often)
        if self._counts[0].sum(dtype=np.int64) > _MOST:
            self._counts //= np.uint32(2)

    def __call__(self, texts: Texts) -> Integers:
        """How many events with each of these terms were seen, about."""
        places = _places(texts)
        least: Integers = np.min([self._counts[row][places[row]] for row in range(len(_SEEDS))], axis=0).astype(
            np.int64
        )
        return least


def _places(texts: Texts) -> list[Integers]:
    hashes = np.empty(len(texts.start), np.uint64)
    places = []
    for seed in _SEEDS:
        hash_texts(texts, seed, hashes)
        places.append((hashes % np.uint64(_WIDTH)).astype(np.int64))
    return places
