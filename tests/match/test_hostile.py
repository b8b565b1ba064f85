"""Subscriptions and events that somebody chose to hurt: results stay right, and others do not pay for it.

What is counted is work: postings that were looked at, bytes that are kept.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from roamcast.match.index.index import Index
from roamcast.match.index.lsm import IndexStore, build_index
from roamcast.match.index.rows import index_rows
from roamcast.match.port import Events, Subscriptions

MANY = 1_000_000
FEW = 1_000


def wishes(box: tuple[float, float, float, float], terms: pa.ListArray) -> Subscriptions:
    sides = (np.full(len(terms), side) for side in box)
    return Subscriptions(*sides, terms)


def pairs_of(first: str, others: pa.Array) -> pa.ListArray:
    """Lists of two terms: the same first, and one of the others."""
    firsts = pa.array([first]).take(pa.array(np.zeros(len(others), np.int64)))
    both = pa.concat_arrays([firsts, others]).take(pa.array(np.arange(2 * len(others)).reshape(2, -1).T.reshape(-1)))
    return pa.ListArray.from_arrays(pa.array(np.arange(0, 2 * len(others) + 1, 2), pa.int32()), both)


def events(*given: tuple[float, float, list[str]]) -> Events:
    x, y, terms = zip(*given, strict=True)
    return Events(np.array(x, float), np.array(y, float), pa.array(list(terms), pa.list_(pa.string())))


def small_ones(count: int) -> Subscriptions:
    """Beside each other, far from the origin, each with a term of its own."""
    x = 100.0 + np.arange(count) / count
    terms = pa.array([[f"own-{n}", "fire"] for n in range(count)])
    return Subscriptions(x, np.full(count, 50.0), x + 1e-4, np.full(count, 50.1), terms)


def together(*parts: Subscriptions) -> Subscriptions:
    sides = (np.concatenate(side) for side in zip(*(part[:4] for part in parts), strict=True))
    return Subscriptions(*sides, pa.concat_arrays([part.terms for part in parts]))


def scanned(index: Index, happened: Events) -> int:
    return sum(portion.scanned for portion in index.candidates(happened))


def test_a_million_on_one_cell_and_term() -> None:
    """An event that has the term finds those that want its other terms; one elsewhere looks at none of them."""
    numbers = pa.array(np.arange(MANY) % FEW).cast(pa.string())
    same = wishes((0.0, 0.0, 0.001, 0.001), pairs_of("fire", numbers))
    index = build_index(together(same, small_ones(FEW)))
    here, there = events((0.0005, 0.0005, ["fire", "7"])), events((100.50005, 50.05, ["fire", "own-500", "own-501"]))
    found = index.match(here)
    assert found.subscription.tolist() == list(range(7, MANY, FEW))
    assert scanned(index, here) <= 2 * MANY // FEW
    assert scanned(index, there) <= 10


def test_a_million_that_are_all_alike() -> None:
    """All of them match, and all are found."""
    numbers = pa.array(np.zeros(MANY, np.int64)).cast(pa.string())
    index = build_index(wishes((0.0, 0.0, 0.001, 0.001), pairs_of("fire", numbers)))
    found = index.match(events((0.0005, 0.0005, ["fire", "0"]), (0.0005, 0.0005, ["fire"]), (9.0, 9.0, ["fire", "0"])))
    assert found.subscription.tolist() == list(range(MANY))
    assert not found.event.any()


def test_boxes_that_cover_everything() -> None:
    """Cost those events that have their terms, and no others."""
    numbers = pa.array(np.arange(100 * FEW)).cast(pa.string())
    world = wishes((-180.0, -90.0, 180.0, 90.0), pairs_of("fire", numbers))
    index = build_index(together(world, small_ones(FEW)))
    small, both = events((100.50005, 50.05, ["fire", "own-500"])), events((100.50005, 50.05, ["fire", "own-500", "77"]))
    assert index.match(small).subscription.tolist() == [100 * FEW + 500]
    assert index.match(both).subscription.tolist() == [77, 100 * FEW + 500]
    assert scanned(index, small) <= scanned(index, both) <= 10


def test_random_terms_in_subscriptions_cost_their_bytes(tmp_path: Path) -> None:
    """A term nobody else has is kept once, with a few bytes around it."""
    rng = np.random.default_rng(1)
    random = pa.array([bytes(row).hex() for row in rng.integers(0, 256, (100_000, 16), np.uint8)])
    ones = pa.ListArray.from_arrays(pa.array(np.arange(len(random) + 1), pa.int32()), random)
    layers = IndexStore(tmp_path)
    stack = layers.apply((), added=index_rows(np.arange(len(random)), wishes((0.0, 0.0, 1.0, 1.0), ones)))
    assert layers.nbytes(stack) <= len(random) * (32 + 36 + 100)
    index = layers.open(stack)
    assert index.match(events((0.5, 0.5, [random[5].as_py()]))).subscription.tolist() == [5]


def test_random_terms_in_events_leave_nothing_behind(tmp_path: Path) -> None:
    """They are looked for, not found, and forgotten: the index is the same files as before."""
    layers = IndexStore(tmp_path)
    index = layers.open(layers.apply((), added=index_rows(np.arange(FEW), small_ones(FEW))))
    before = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    rng = np.random.default_rng(2)
    terms = [bytes(row).hex() for row in rng.integers(0, 256, (100_000, 8), np.uint8)]
    happened = events(*((100.50005, 50.05, terms[n : n + 100]) for n in range(0, len(terms), 100)))
    assert len(index.match(happened).event) == 0
    assert scanned(index, happened) == 0
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == before
