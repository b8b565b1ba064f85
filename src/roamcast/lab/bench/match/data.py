"""The data of the match benchmarks: skewed events, and subscriptions made from them.

Events have six terms of a vocabulary whose frequencies follow Zipf's law, and lie around 200 centres. A subscription
takes two to four terms of a random event and a box around its point.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roamcast.match.port import Events, Subscriptions

__all__ = ["EVENTS_SCHEMA", "MatchData"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

EVENTS_SCHEMA: Final = pa.schema(
    [
        pa.field("event", pa.int64()),
        pa.field("x", pa.float64()),
        pa.field("y", pa.float64()),
        pa.field("terms", pa.list_(pa.string())),
    ]
)

_TERMS: Final = 6
_SUBSCRIPTION_TERMS: Final = (2, 4)
_VOCABULARY: Final = 20_000
_CENTRES: Final = 200
_SPREAD: Final = 0.1  # degrees
_HALF_SIDE: Final = (0.005, 0.1)  # degrees


class MatchData:
    """Events by number. The same seed gives the same data."""

    def __init__(self, events: int, seed: int = 4) -> None:
        rng = np.random.default_rng(seed)
        self.centre = np.stack([rng.uniform(-170, 170, _CENTRES), rng.uniform(-60, 70, _CENTRES)])
        self.words = _words(rng, _VOCABULARY)
        of = rng.integers(0, _CENTRES, events)
        self.x, self.y = self.centre[:, of] + rng.normal(0, _SPREAD, (2, events))
        share = 1 / np.arange(1, _VOCABULARY + 1)
        self.term = _distinct_terms(rng, np.cumsum(share / share.sum()), events)

    def events(self, first: int, end: int) -> pa.RecordBatch:
        """Return the events from `first` to before `end`, in EVENTS_SCHEMA."""
        rows = slice(first, end)
        columns = [np.arange(first, end), self.x[rows], self.y[rows]]
        terms = _lists(self.words, self.term[rows].reshape(-1), np.full(end - first, _TERMS))
        return pa.RecordBatch.from_arrays([*map(pa.array, columns), terms], schema=EVENTS_SCHEMA)

    def first_events(self, count: int) -> Events:
        """Return the first `count` events as a matcher takes them."""
        batch = self.events(0, count)
        return Events(batch["x"].to_numpy(), batch["y"].to_numpy(), batch["terms"])

    def terms_of(self, events: Integers, count: int) -> pa.ListArray:
        """Return the first `count` terms of each of these events."""
        return _lists(self.words, self.term[events, :count].reshape(-1), np.full(len(events), count))

    def subscriptions(self, count: int, seed: int = 5) -> Subscriptions:
        rng = np.random.default_rng(seed)
        of = rng.integers(0, len(self.x), count)
        x, y = self.x[of], self.y[of]
        half_x, half_y = rng.uniform(*_HALF_SIDE, (2, count))
        lengths = rng.integers(_SUBSCRIPTION_TERMS[0], _SUBSCRIPTION_TERMS[1] + 1, count)
        # The first terms of each event, in random order.
        terms = rng.permuted(self.term[of], axis=1)[np.arange(_TERMS) < lengths[:, np.newaxis]]
        return Subscriptions(x - half_x, y - half_y, x + half_x, y + half_y, _lists(self.words, terms, lengths))


def _words(rng: np.random.Generator, count: int) -> pa.StringArray:
    """Return distinct words of four to ten letters."""
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
    words: dict[str, None] = {}
    while len(words) < count:
        words[bytes(rng.choice(letters, rng.integers(4, 11))).decode()] = None
    return pa.array(list(words), pa.string())


def _distinct_terms(rng: np.random.Generator, cumulated: Floats, events: int) -> npt.NDArray[np.int32]:
    """Draw distinct terms for each event, by their frequencies."""

    def draw(shape: tuple[int, ...]) -> npt.NDArray[np.int32]:
        indices = np.searchsorted(cumulated, rng.random(shape))
        return np.minimum(indices, len(cumulated) - 1).astype(np.int32)

    terms = draw((events, _TERMS))
    while len(rows := np.flatnonzero((np.diff(np.sort(terms, axis=1), axis=1) == 0).any(axis=1))):
        terms[rows] = draw((len(rows), _TERMS))
    return terms


def _lists(words: pa.StringArray, terms: npt.NDArray[np.int32], lengths: Integers) -> pa.ListArray:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), words.take(pa.array(terms)))
