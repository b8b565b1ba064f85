"""Hashes of rows."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa

from roamcast.pipeline.state.hashing import hash_rows, shards_of

_KEYS = "[pa.array(['a', 'b', 'ab', '']), pa.array([1, 2, 3, -4])]"


def test_hashes_are_the_same_in_every_process() -> None:
    """Files are sorted by them."""
    code = f"import pyarrow as pa; from roamcast.pipeline.state.hashing import hash_rows; print(*hash_rows({_KEYS}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = hash_rows([pa.array(["a", "b", "ab", ""]), pa.array([1, 2, 3, -4])])
    assert list(map(int, run.stdout.split())) == here.tolist()


def test_the_hash_depends_on_each_column_and_their_order() -> None:
    """`a, bc` is another key than `ab, c` and than `bc, a`."""
    left, right = pa.array(["a", "ab", "bc"]), pa.array(["bc", "c", "a"])
    assert len(set(hash_rows([left, right]).tolist())) == 3
    assert hash_rows([pa.array(["x"]).dictionary_encode()]).tolist() == hash_rows([pa.array(["x"])]).tolist()


def test_shards_are_even() -> None:
    """Names that differ in a number only are in all shards, and sorted in them by other bits."""
    names = pa.array([f"sensor-{number}" for number in range(10_000)])
    for shards in (2, 3, 8):
        counts = np.bincount(shards_of([names], shards), minlength=shards)
        assert counts.min() > 0.9 * 10_000 / shards
