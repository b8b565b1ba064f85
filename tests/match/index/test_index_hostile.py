"""Hostile subscriptions and events: results stay expected and the cost stays bounded.

The cost is counted in postings scanned and bytes stored.
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


def subscription_rows(box: tuple[float, float, float, float], terms: pa.ListArray) -> Subscriptions:
    sides = (np.full(len(terms), side) for side in box)
    return Subscriptions(*sides, terms)


def pairs_of(first: str, others: pa.Array) -> pa.ListArray:
    """Return lists of two terms: the same first one, and one of the others."""
    firsts = pa.array([first]).take(pa.array(np.zeros(len(others), np.int64)))
    both = pa.concat_arrays([firsts, others]).take(pa.array(np.arange(2 * len(others)).reshape(2, -1).T.reshape(-1)))
    return pa.ListArray.from_arrays(pa.array(np.arange(0, 2 * len(others) + 1, 2), pa.int32()), both)


def events(*rows: tuple[float, float, list[str]]) -> Events:
    x, y, terms = zip(*rows, strict=True)
    return Events(np.array(x, float), np.array(y, float), pa.array(list(terms), pa.list_(pa.string())))


def small_ones(count: int) -> Subscriptions:
    """Return small adjacent boxes far from the origin, each with a term of its own."""
    x = 100.0 + np.arange(count) / count
    terms = pa.array([[f"own-{n}", "fire"] for n in range(count)])
    return Subscriptions(x, np.full(count, 50.0), x + 1e-4, np.full(count, 50.1), terms)


def together(*parts: Subscriptions) -> Subscriptions:
    sides = (np.concatenate(side) for side in zip(*(part[:4] for part in parts), strict=True))
    return Subscriptions(*sides, pa.concat_arrays([part.terms for part in parts]))


def scanned(index: Index, event_rows: Events) -> int:
    return sum(chunk.scanned for chunk in index.candidates(event_rows))


def test_a_million_subscriptions_in_one_cell_with_one_term() -> None:
    """An event with the term finds those with its other terms; an event elsewhere scans none of them."""
    numbers = pa.array(np.arange(MANY) % FEW).cast(pa.string())
    same = subscription_rows((0.0, 0.0, 0.001, 0.001), pairs_of("fire", numbers))
    index = build_index(together(same, small_ones(FEW)))
    here, there = events((0.0005, 0.0005, ["fire", "7"])), events((100.50005, 50.05, ["fire", "own-500", "own-501"]))
    found = index.match(here)
    assert found.subscription.tolist() == list(range(7, MANY, FEW))
    assert scanned(index, here) <= 2 * MANY // FEW
    assert scanned(index, there) <= 10


def test_a_million_equal_subscriptions_all_match() -> None:
    numbers = pa.array(np.zeros(MANY, np.int64)).cast(pa.string())
    index = build_index(subscription_rows((0.0, 0.0, 0.001, 0.001), pairs_of("fire", numbers)))
    found = index.match(events((0.0005, 0.0005, ["fire", "0"]), (0.0005, 0.0005, ["fire"]), (9.0, 9.0, ["fire", "0"])))
    assert found.subscription.tolist() == list(range(MANY))
    assert not found.event.any()


def test_boxes_that_cover_everything_only_cost_events_with_their_terms() -> None:
    numbers = pa.array(np.arange(100 * FEW)).cast(pa.string())
    world = subscription_rows((-180.0, -90.0, 180.0, 90.0), pairs_of("fire", numbers))
    index = build_index(together(world, small_ones(FEW)))
    small, both = events((100.50005, 50.05, ["fire", "own-500"])), events((100.50005, 50.05, ["fire", "own-500", "77"]))
    assert index.match(small).subscription.tolist() == [100 * FEW + 500]
    assert index.match(both).subscription.tolist() == [77, 100 * FEW + 500]
    assert scanned(index, small) <= scanned(index, both) <= 10


def test_random_terms_of_subscriptions_cost_their_bytes(tmp_path: Path) -> None:
    """A unique term is stored once, with a few bytes of overhead."""
    rng = np.random.default_rng(1)
    random = pa.array([bytes(row).hex() for row in rng.integers(0, 256, (100_000, 16), np.uint8)])
    ones = pa.ListArray.from_arrays(pa.array(np.arange(len(random) + 1), pa.int32()), random)
    store = IndexStore(tmp_path)
    stack = store.apply((), added=index_rows(np.arange(len(random)), subscription_rows((0.0, 0.0, 1.0, 1.0), ones)))
    assert store.nbytes(stack) <= len(random) * (32 + 36 + 100)
    index = store.open(stack)
    assert index.match(events((0.5, 0.5, [random[5].as_py()]))).subscription.tolist() == [5]


def test_random_terms_of_events_are_not_stored(tmp_path: Path) -> None:
    """They match nothing, and the index has the same files as before."""
    store = IndexStore(tmp_path)
    index = store.open(store.apply((), added=index_rows(np.arange(FEW), small_ones(FEW))))
    before = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    rng = np.random.default_rng(2)
    terms = [bytes(row).hex() for row in rng.integers(0, 256, (100_000, 8), np.uint8)]
    event_rows = events(*((100.50005, 50.05, terms[n : n + 100]) for n in range(0, len(terms), 100)))
    assert len(index.match(event_rows).event) == 0
    assert scanned(index, event_rows) == 0
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == before
