"""Term statistics: how often events carry a term, estimated in constant memory."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roamcast.match.index.dictionary import encode_terms
from roamcast.match.kernels.texts import Texts, hash_seed, hash_texts

__all__ = ["TermStatistics"]

Integers = npt.NDArray[np.int64]

_WIDTH: Final = 1 << 16
_SEEDS: Final = (hash_seed(b"one"), hash_seed(b"two"))  # constant: collisions only make estimates worse
_MAX_COUNTED: Final = 1 << 24  # terms; then all counts are halved, so that recent events weigh more


class TermStatistics:
    """A count-min sketch: an estimate is never too low and seldom much too high. Takes half a megabyte.

    It only helps to choose the term that a subscription is posted under; matches do not depend on it. The same events
    in the same order give the same estimates. It is not stored: a process begins with an empty one.
    """

    def __init__(self) -> None:
        self._counts: npt.NDArray[np.uint32] = np.zeros((len(_SEEDS), _WIDTH), np.uint32)

    def observe(self, terms: pa.ListArray[Any]) -> None:
        """Count the terms of a batch of events, or of a sample of it."""
        lists = encode_terms(terms)
        events = np.bincount(lists.code, minlength=len(lists.texts.start)).astype(np.uint32)
        for row, columns in enumerate(_columns(lists.texts)):
            np.add.at(self._counts[row], columns, events)
        if self._counts[0].sum(dtype=np.int64) > _MAX_COUNTED:
            self._counts //= np.uint32(2)

    def __call__(self, texts: Texts) -> Integers:
        """Estimate how many events had each of these terms."""
        counts = [self._counts[row][columns] for row, columns in enumerate(_columns(texts))]
        estimate: Integers = np.minimum.reduce(counts).astype(np.int64)
        return estimate


def _columns(texts: Texts) -> list[Integers]:
    """Return the column of each text in each row of the sketch."""
    hashes = np.empty(len(texts.start), np.uint64)
    columns = []
    for seed in _SEEDS:
        hash_texts(texts, seed, hashes)
        columns.append((hashes % np.uint64(_WIDTH)).astype(np.int64))
    return columns
