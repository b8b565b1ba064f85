"""Manifests: a published state is durable and complete."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.errors import CorruptionError
from roamcast.pipeline.schemas import RECEIVERS, SHARDED_TABLES, SOURCES, StateTable
from roamcast.pipeline.state.hashing import shards_of
from roamcast.pipeline.state.manifests import Manifest, StateFolder, shard_name, split_rows
from roamcast.pipeline.state.parts import Part


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    state = StateFolder(tmp_path / "state")
    state.create("pipe", {})
    return state


def part(state: StateFolder, last: int) -> Part:
    row = {"office": "o", "receiver": "ann", "last": last}
    return state.parts.write(RECEIVERS, pa.Table.from_pylist([row], RECEIVERS.schema))


def publish(state: StateFolder, batch: int) -> Manifest:
    """Publish batch N with one part."""
    manifest = Manifest("pipe", batch, {"receivers/0": (part(state, batch),)}, {"letters": batch})
    state.publish(manifest)
    return manifest


def part_names(state: StateFolder) -> set[str]:
    return {path.name for path in state.parts.folder.iterdir()}


def test_a_new_state_is_before_the_first_batch(state: StateFolder) -> None:
    """It has the id of its pipeline and nothing else."""
    assert state.newest() == Manifest("pipe", -1, {}, {})


def test_without_a_folder_there_is_no_state(tmp_path: Path) -> None:
    """`newest` returns None."""
    assert StateFolder(tmp_path / "state").newest() is None


def test_the_last_published_state_is_the_newest(state: StateFolder) -> None:
    """Batches are compared as numbers, also in another process."""
    for batch in (0, 1, 2, 9, 10):
        manifest = publish(state, batch)
    assert StateFolder(state.folder).newest() == manifest
    assert manifest.batch == 10


def test_the_last_two_states_are_kept(state: StateFolder) -> None:
    """Older manifests and their parts are deleted."""
    manifests = [publish(state, batch) for batch in range(4)]
    assert {path.name for path in state.folder.glob("*.json")} == {"2.json", "3.json"}
    assert part_names(state) == {manifest.parts(RECEIVERS)[0].name for manifest in manifests[2:]}


def test_a_part_of_either_state_stays(state: StateFolder) -> None:
    """A part is deleted only when neither manifest names it."""
    first = publish(state, 0)
    state.publish(replace(first, batch=1))
    state.publish(replace(first, batch=2))
    assert part_names(state) == {first.parts(RECEIVERS)[0].name}


def test_publishing_again_changes_nothing(state: StateFolder) -> None:
    """A batch that is repeated publishes the same state."""
    publish(state, 0)
    again = [publish(state, 1), publish(state, 1)]
    assert state.newest() == again[0] == again[1]
    assert len(part_names(state)) == 2


def test_a_crash_before_publishing_leaves_the_previous_state(state: StateFolder) -> None:
    """Parts without a manifest, and an incomplete manifest, are ignored."""
    before = publish(state, 0)
    part(state, 1)
    (state.folder / "1.json.tmp").write_bytes(b'{"format"')
    (state.parts.folder / "0123.arrow.tmp").write_bytes(b"half")
    assert StateFolder(state.folder).newest() == before


def test_leftovers_of_a_crash_are_deleted(state: StateFolder) -> None:
    """By the next batch that is published."""
    before = publish(state, 0)
    orphan = part(state, 99)
    (state.parts.folder / "0123.arrow.tmp").write_bytes(b"half")
    (state.folder / "1.json.tmp").write_bytes(b'{"format"')
    after = publish(state, 1)
    assert orphan.name not in part_names(state)
    assert part_names(state) == {m.parts(RECEIVERS)[0].name for m in (before, after)}
    assert not list(state.folder.glob("*.tmp"))


def test_other_files_in_the_folder_are_ignored(state: StateFolder) -> None:
    """Only files named like a manifest count."""
    manifest = publish(state, 0)
    (state.folder / "notes.json").write_text("mine")
    assert state.newest() == manifest


def checked(content: dict[str, Any]) -> bytes:
    """A manifest with its checksum."""
    return orjson.dumps({"checksum": hashlib.sha256(orjson.dumps(content)).hexdigest(), **content})


INDEX = {"stack": [], "removed": [], "leaving": [], "next_handle": 0, "sharded": None}
SHARDED = {"shards": [], "cuts": {"at": []}, "secret": "", "routes": [], "stale": 0, "planned": None}
GOOD = {
    "format": "roamcast-state/13", "pipeline": "pipe", "batch": 3, "shards": 1, "history": None, "tables": {},
    "counters": {}, "moving_regions": [], "index": INDEX,
}  # fmt: skip


def test_a_good_manifest_is_read(state: StateFolder) -> None:
    """So the others below are refused for the right reason."""
    (state.folder / "3.json").write_bytes(checked(GOOD))
    assert state.newest() == Manifest("pipe", 3)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        checked({**GOOD, "format": "roamcast-state/1"}),
        checked({**GOOD, "batch": 2}),
        checked({**GOOD, "moving_regions": ["planar"]}),
        checked({**GOOD, "tables": []}),
        checked({**GOOD, "index": {**INDEX, "sharded": SHARDED}}),
        checked({**GOOD, "index": {**INDEX, "sharded": []}}),
        checked({**GOOD, "tables": {"sources": [{"checksum": "1"}]}}),
        checked({key: value for key, value in GOOD.items() if key != "counters"}),
        orjson.dumps(GOOD),
        checked(GOOD).replace(b'"next_handle":0', b'"next_handle":1'),
        checked(GOOD).replace(
            b'"moving_regions":[]', b'"moving_regions":[{"space":"planar","version":"1","earlier":null}]'
        ),
    ],
)
def test_an_unreadable_manifest_is_corruption(state: StateFolder, content: bytes) -> None:
    """The error has a hint. An older state is not used instead."""
    (state.folder / "3.json").write_bytes(content)
    with pytest.raises(CorruptionError, match=r"the manifest of batch 3 is unreadable.*--new"):
        state.newest()


def test_a_damaged_old_manifest_does_not_matter(state: StateFolder) -> None:
    """The next state is published; nothing is deleted until the damaged manifest is out of use."""
    manifests = [publish(state, 0), publish(state, 1)]
    (state.folder / "1.json").write_bytes(b"{")
    manifests.append(publish(state, 2))
    assert state.newest() == manifests[2]
    assert part_names(state) == {manifest.parts(RECEIVERS)[0].name for manifest in manifests}
    manifests += [publish(state, 3), publish(state, 4)]
    assert part_names(state) == {manifest.parts(RECEIVERS)[0].name for manifest in manifests[3:]}


def rows_of(table: StateTable, values: dict[tuple[str, ...], int]) -> pa.Table:
    """A row for each key, with a number in one other column."""
    column = table.schema.names[-1] if table is not SOURCES else "seq"
    rows = [{**dict(zip(table.keys, key, strict=False)), column: number} for key, number in values.items()]
    return pa.Table.from_pylist(rows, table.schema)


def all_rows(state: StateFolder, manifest: Manifest, table: StateTable) -> list[dict[str, Any]]:
    rows = state.read_table(manifest, table).to_pylist()
    return sorted(rows, key=lambda row: tuple(row[key] for key in table.keys))


_keys = st.tuples(*[st.sampled_from(["a", "b", "c", "é", ""])] * 3)
_pushes = st.lists(st.dictionaries(_keys, st.integers(1, 9), max_size=12), max_size=4)


@given(st.sampled_from(SHARDED_TABLES), st.dictionaries(_keys, st.integers(1, 9)), st.integers(1, 5))
def test_rows_are_split_by_the_columns_that_divide_a_table(
    table: StateTable, values: dict[tuple[str, ...], int], shards: int
) -> None:
    """Each row is in one shard, in the order in which it was, and rows with equal values are in the same."""
    rows = rows_of(table, values)
    split = dict(split_rows(table, rows, shards))
    shard = shards_of([rows.column(name).combine_chunks() for name in table.shard_by], shards)
    expected: dict[int, list[dict[str, Any]]] = {}
    for number, row in zip(shard.tolist(), rows.to_pylist(), strict=True):
        expected.setdefault(number, []).append(row)
    assert {number: those.to_pylist() for number, those in split.items()} == expected
    assert all(0 <= number < shards for number in split)


@given(st.sampled_from(SHARDED_TABLES), _pushes, st.lists(st.integers(1, 6), min_size=1, max_size=3))
def test_a_state_has_the_same_rows_in_any_number_of_shards(
    table: StateTable, pushes: list[dict[tuple[str, ...], int]], counts: list[int]
) -> None:
    """Each of them where it is looked up; and stacks stay short."""
    with tempfile.TemporaryDirectory() as folder:
        state = StateFolder(Path(folder) / "state")
        state.create("pipe", {})
        manifest = Manifest("pipe")
        for values in pushes:
            rows = rows_of(table, values)
            stack = state.parts.push(table, manifest.parts(table), rows, largest=3)
            manifest = replace(manifest, tables={shard_name(table, 0): stack, "bindings": ()})
        expected = all_rows(state, manifest, table)
        for count in counts:
            before, manifest = manifest, state.divide(manifest, count)
            assert manifest.shards == count
            assert all_rows(state, manifest, table) == expected
            for shard in range(count):
                stack = manifest.tables.get(shard_name(table, shard), ())
                rows = state.parts.read_all(table, stack)
                assert all(number == shard for number, _ in split_rows(table, rows, count))
                assert count == before.shards or state.parts.merge(table, stack) == stack
        names = {name for name in manifest.tables if "/" in name}
        assert names <= {shard_name(table, shard) for shard in range(counts[-1])}
