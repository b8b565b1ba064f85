"""Lookups in a stack of parts equal reading everything and filtering."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.errors import CorruptionError
from roamcast.pipeline.schemas import BINDINGS, LAST_SENT, RECEIVERS, SUBSCRIPTIONS
from roamcast.pipeline.state.hashing import shards_of
from roamcast.pipeline.state.lookups import EndLimits, ShardedLookup, TableLookup
from roamcast.pipeline.state.manifests import split_rows
from roamcast.pipeline.state.parts import Part, PartFolder

Push = dict[tuple[str, int], int | None]  # by (node, since): until

NODES, NAMES = ("n", "né", ""), ("a", "ab", "", "b")


def bindings(push: Push) -> pa.Table:
    """Rows whose id and source depend on their key alone, as those of a binding do."""
    rows = [
        {
            "node": node, "since": since, "id": f"s{since % 2}", "source": NAMES[since % 3], "until": until,
            "end": None if until is None else 10 * (until % 4),
        }
        for (node, since), until in push.items()
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, BINDINGS.schema)


def stack_of(folder: PartFolder, pushes: Sequence[Push]) -> tuple[Part, ...]:
    """A part for each push, unmerged."""
    return tuple(folder.write(BINDINGS, bindings(push)) for push in pushes if push)


def arrays(columns: Sequence[str], keys: Sequence[tuple[Any, ...]]) -> list[pa.Array]:
    types = [BINDINGS.schema.field(column).type for column in columns]
    return [pa.array([key[i] for key in keys], type) for i, type in enumerate(types)]


def find_rows(
    lookup: TableLookup, columns: Sequence[str], keys: Sequence[tuple[Any, ...]]
) -> list[list[dict[str, Any]]]:
    """For each key the rows that have it, ordered by offset."""
    pairs = lookup.find(columns, arrays(columns, keys))
    assert pairs.key.tolist() == sorted(pairs.key.tolist())
    rows = lookup.take(pairs.row).to_pylist()
    by_key: list[list[dict[str, Any]]] = [[] for _ in keys]
    for key, row in zip(pairs.key.tolist(), rows, strict=True):
        by_key[key].append(row)
    return [sorted(rows, key=lambda row: (row["node"], row["since"])) for rows in by_key]


_pushes = st.lists(
    st.dictionaries(
        st.tuples(st.sampled_from(NODES), st.integers(1, 8)), st.none() | st.integers(1, 9), min_size=1, max_size=8
    ),
    max_size=5,
)
_questions = st.one_of(
    st.tuples(
        st.just(("node", "source")),
        st.lists(st.tuples(st.sampled_from([*NODES, "x"]), st.sampled_from(NAMES)), max_size=6),
    ),
    st.tuples(
        st.just(("node", "id", "source")),
        st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(["s0", "s1", "s2"]), st.sampled_from(NAMES))),
    ),
    st.tuples(st.just(("node", "since")), st.lists(st.tuples(st.sampled_from(NODES), st.integers(0, 9)), max_size=6)),
)


def hash_to_zero(columns: Sequence[pa.Array]) -> Any:
    return np.zeros(len(columns[0]), np.uint64)


@pytest.mark.parametrize("collide", [False, True])
@given(pushes=_pushes, questions=st.lists(_questions, max_size=3))
def test_finding_equals_reading_all_and_filtering(collide: bool, pushes: list[Push], questions: list[Any]) -> None:
    """For keys that exist, do not exist or are repeated; also if all hashes collide."""
    with tempfile.TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
        if collide:
            patch.setattr("roamcast.pipeline.state.lookups.hash_rows", hash_to_zero)
        folder = PartFolder(Path(path))
        stack = stack_of(folder, pushes)
        rows = folder.read_all(BINDINGS, stack).to_pylist()
        rows.sort(key=lambda row: (row["node"], row["since"]))
        lookup = TableLookup(folder.folder, BINDINGS.name, stack)
        for columns, keys in questions:
            expected = [[row for row in rows if tuple(row[column] for column in columns) == key] for key in keys]
            assert find_rows(lookup, columns, keys) == expected


@given(pushes=_pushes, data=st.data())
def test_rows_are_taken_in_the_given_order(pushes: list[Push], data: st.DataObject) -> None:
    """Rows of any part, also repeated."""
    with tempfile.TemporaryDirectory() as path:
        folder = PartFolder(Path(path))
        lookup = TableLookup(folder.folder, BINDINGS.name, stack_of(folder, pushes))
        places = sorted({place for push in pushes for place in push})
        found = lookup.find(("node", "since"), arrays(("node", "since"), places))
        assert found.key.tolist() == list(range(len(places)))
        wanted = data.draw(st.lists(st.sampled_from(range(len(places))), max_size=12) if places else st.just([]))
        rows = found.row[np.array(wanted, np.int64)]
        for columns in (None, ("since", "node")):
            taken = lookup.take(rows, columns)
            assert [(row["node"], row["since"]) for row in taken.to_pylist()] == [places[number] for number in wanted]
            assert taken.schema.names == list(columns or BINDINGS.schema.names)


def test_row_numbers_are_the_same_in_every_process(tmp_path: Path) -> None:
    """The driver can take rows that a task found."""
    stack = stack_of(PartFolder(tmp_path), [{("n", 1): None, ("n", 2): None}, {("n", 3): None, ("n", 1): 4}])
    keys = arrays(("node", "since"), [("n", 3), ("n", 1)])
    found = TableLookup(tmp_path, BINDINGS.name, stack).find(("node", "since"), keys)
    again = PartFolder(tmp_path / "copy")
    again.folder.mkdir()
    for part in stack:
        (again.folder / part.name).write_bytes((tmp_path / part.name).read_bytes())
    rows = TableLookup(again.folder, BINDINGS.name, stack).take(found.row).to_pylist()
    assert [(row["since"], row["until"]) for row in rows] == [(3, None), (1, 4)]


def test_columns_are_compared_one_by_one(tmp_path: Path) -> None:
    """Keys that are equal when concatenated are different."""
    names = [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", "")]
    rows = [{"office": office, "receiver": receiver, "last": n} for n, (office, receiver) in enumerate(names)]
    part = PartFolder(tmp_path).write(RECEIVERS, pa.Table.from_pylist(rows, RECEIVERS.schema))
    lookup = TableLookup(tmp_path, RECEIVERS.name, (part,))
    found = lookup.find(RECEIVERS.keys, [pa.array([name[i] for name in names], pa.string()) for i in range(2)])
    assert lookup.take(found.row, ("last",)).to_pydict() == {"last": [0, 1, 2, 3]}


def test_a_table_without_parts_has_no_rows(tmp_path: Path) -> None:
    """But it has all columns that were requested."""
    lookup = TableLookup(tmp_path, BINDINGS.name, ())
    found = lookup.find(("node", "source"), arrays(("node", "source"), [("n", "a")]))
    assert (found.key.tolist(), found.row.tolist()) == ([], [])
    assert lookup.take(found.row).equals(BINDINGS.schema.empty_table())
    assert lookup.take(found.row, ("source", "end")).schema.names == ["source", "end"]


def test_a_damaged_part_is_never_used(tmp_path: Path) -> None:
    """The checksum is verified when a part is opened."""
    (part,) = stack_of(PartFolder(tmp_path), [{("n", 1): None}])
    (tmp_path / part.name).write_bytes(b"other")
    with pytest.raises(CorruptionError, match="a part of the state is damaged"):
        TableLookup(tmp_path, BINDINGS.name, (part,))


@given(pushes=_pushes, offset=st.integers(0, 9), time=st.integers(0, 40))
def test_limits_skip_only_rows_that_have_ended(pushes: list[Push], offset: int, time: int) -> None:
    """Live rows and rows that ended later are found, and only the newest version of each."""
    keys = [(node, name) for node in NODES for name in NAMES]
    with tempfile.TemporaryDirectory() as folder:
        parts = PartFolder(Path(folder))
        lookup = TableLookup(parts.folder, BINDINGS.name, stack_of(parts, pushes))
        columns = arrays(("node", "source"), keys)
        limits = EndLimits(np.full(len(keys), offset), np.full(len(keys), time))
        found = {
            row["node"] + str(row["since"]): row
            for row in lookup.take(lookup.find(("node", "source"), columns, limits).row).to_pylist()
        }
        rows = lookup.take(lookup.find(("node", "source"), columns).row).to_pylist()
        alive = lookup.take(lookup.find(("node", "source"), columns, EndLimits.live_only(len(keys))).row).to_pylist()
    known = {row["node"] + str(row["since"]): row for row in rows}
    wanted = {key for key, row in known.items() if row["until"] is None or row["until"] > offset or row["end"] > time}
    assert wanted <= found.keys()
    assert all(known[key] == row for key, row in found.items())
    assert sorted(map(str, alive)) == sorted(str(row) for row in rows if row["until"] is None)


_handles = st.lists(st.dictionaries(st.integers(0, 12), st.none() | st.integers(1, 9), min_size=1), max_size=4)


def subscriptions(folder: PartFolder, pushes: list[dict[int, int | None]]) -> TableLookup:
    """An unmerged part for each push of handles and their ends; handles are unordered."""
    parts = []
    for push in pushes:
        rows = [
            {"node": "n", "since": 50 - handle, "id": f"s{handle % 5}", "handle": handle, "until": until}
            for handle, until in push.items()
        ]
        parts.append(folder.write(SUBSCRIPTIONS, pa.Table.from_pylist(rows, SUBSCRIPTIONS.schema)))
    return TableLookup(folder.folder, SUBSCRIPTIONS.name, parts)


@given(pushes=_handles, handles=st.lists(st.integers(-1, 14)))
def test_handles_are_found_without_an_index(pushes: list[dict[int, int | None]], handles: list[int]) -> None:
    """For handles that exist, do not exist or are repeated. Nothing is hashed."""

    def unused(columns: Sequence[pa.Array]) -> Any:
        raise AssertionError("hashed")

    with tempfile.TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr("roamcast.pipeline.state.lookups.hash_rows", unused)
        lookup = subscriptions(PartFolder(Path(path)), pushes)
        found = lookup.find(("handle",), [pa.array(handles, pa.int64())])
        rows = lookup.take(found.row, ("handle", "until")).to_pylist()
    newest = {handle: until for push in pushes for handle, until in push.items()}
    expected = [(n, {"handle": h, "until": newest[h]}) for n, h in enumerate(handles) if h in newest]
    assert list(zip(found.key.tolist(), rows, strict=True)) == expected


@given(pushes=_handles, names=st.lists(st.integers(0, 6), min_size=1, unique=True), live=st.booleans())
def test_scanning_finds_what_an_index_finds(pushes: list[dict[int, int | None]], names: list[int], live: bool) -> None:
    """Among all rows, or among live rows only."""
    keys = [pa.array(["n"] * len(names), pa.string()), pa.array([f"s{name}" for name in names])]
    limits = EndLimits.live_only(len(names)) if live else None
    with tempfile.TemporaryDirectory() as path:
        lookup = subscriptions(PartFolder(Path(path)), pushes)
        scanned = lookup.find(("node", "id"), keys, limits, scan=True)
        found = lookup.find(("node", "id"), keys, limits)
        rows = lookup.take(found.row, ("handle", "until")).to_pylist()
    assert (scanned.key.tolist(), scanned.row.tolist()) == (found.key.tolist(), found.row.tolist())
    newest = {handle: until for push in pushes for handle, until in push.items()}
    wanted = {h for h, until in newest.items() if h % 5 in names and not (live and until is not None)}
    assert sorted(row["handle"] for row in rows) == sorted(wanted)


_sent_keys = st.tuples(st.sampled_from(NODES), st.sampled_from(["s0", "s1"]), st.sampled_from(["ann", "bob", "", "é"]))
_sent = st.lists(st.dictionaries(_sent_keys, st.none() | st.integers(0, 9), max_size=8), max_size=5)


@pytest.mark.parametrize("collide", [False, True])
@given(pushes=_sent, shards=st.integers(1, 4), keys=st.lists(_sent_keys, max_size=8))
def test_finding_in_shards_equals_a_dict(
    collide: bool, pushes: list[dict[tuple[str, str, str], int | None]], shards: int, keys: list[tuple[str, str, str]]
) -> None:
    """Parts sorted by hash need no index: those of all shards together, or of its shard; also if all hashes collide."""
    with tempfile.TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
        if collide:
            for module in ("lookups", "parts"):
                patch.setattr(f"roamcast.pipeline.state.{module}.hash_rows", hash_to_zero)
        folder = PartFolder(Path(path))
        stacks: list[tuple[Part, ...]] = [() for _ in range(shards)]
        expected: dict[tuple[str, str, str], int | None] = {}
        for push in pushes:
            rows = [dict(zip(LAST_SENT.schema.names, (*key, last), strict=True)) for key, last in push.items()]
            for shard, those in split_rows(LAST_SENT, pa.Table.from_pylist(rows, LAST_SENT.schema), shards):
                stacks[shard] = (*stacks[shard], folder.write(LAST_SENT, those))
            expected |= push
        together = TableLookup(folder.folder, LAST_SENT.name, [part for stack in stacks for part in stack])
        columns = [pa.array([key[i] for key in keys], pa.string()) for i in range(3)]
        for lookup in (together, ShardedLookup(folder.folder, LAST_SENT, stacks)):
            pairs = lookup.find(LAST_SENT.keys, columns)
            found = lookup.take(pairs.row).to_pylist()
            assert pairs.key.tolist() == [number for number, key in enumerate(keys) if key in expected]
            for number, row in zip(pairs.key.tolist(), found, strict=True):
                assert tuple(row.values()) == (*keys[number], expected[keys[number]])
            assert lookup.take(pairs.row[::-1], ("last",)).to_pylist() == [{"last": row["last"]} for row in found[::-1]]


def test_a_key_is_looked_up_in_its_shard_only(tmp_path: Path) -> None:
    """The parts of the others are not read."""
    folder = PartFolder(tmp_path)
    rows = [{"office": "o", "receiver": f"r{n}", "last": n} for n in range(100)]
    stacks: list[tuple[Part, ...]] = [() for _ in range(8)]
    for shard, those in split_rows(RECEIVERS, pa.Table.from_pylist(rows, RECEIVERS.schema), 8):
        stacks[shard] = (folder.write(RECEIVERS, those),)
    mine = shards_of([pa.array(["r7"])], 8)[0]
    for stack in (*stacks[:mine], *stacks[mine + 1 :]):
        (tmp_path / stack[0].name).unlink()
    lookup = ShardedLookup(tmp_path, RECEIVERS, stacks)
    pairs = lookup.find(RECEIVERS.keys, [pa.array(["o"]), pa.array(["r7"])])
    assert lookup.take(pairs.row).to_pylist() == [rows[7]]


def receiver_parts(folder: PartFolder, count: int) -> list[Part]:
    """Parts with one row each."""
    rows = [{"office": "o", "receiver": "ann", "last": n} for n in range(count)]
    return [folder.write(RECEIVERS, pa.Table.from_pylist([row], RECEIVERS.schema)) for row in rows]


def test_removed_parts_do_not_stay_open(tmp_path: Path) -> None:
    """Or their space would not become free."""
    folder = PartFolder(tmp_path)
    for part in receiver_parts(folder, 300):
        TableLookup(tmp_path, RECEIVERS.name, [part])
        (tmp_path / part.name).unlink()
    maps = Path("/proc/self/maps").read_text().splitlines()
    assert sum(str(tmp_path) in line for line in maps) < 150


def test_a_part_in_use_is_read_once(tmp_path: Path) -> None:
    """However many there are: reading verifies all of it."""
    folder = PartFolder(tmp_path)
    parts = receiver_parts(folder, 700)
    TableLookup(tmp_path, RECEIVERS.name, parts)
    for part in parts:
        (tmp_path / "damaged").write_bytes(b"")
        (tmp_path / "damaged").rename(tmp_path / part.name)
    TableLookup(tmp_path, RECEIVERS.name, parts)


def test_a_part_in_several_pieces_is_damage(tmp_path: Path) -> None:
    """A lookup would see the rows of the first piece only."""
    folder = PartFolder(tmp_path)
    whole = folder.write(
        RECEIVERS, pa.Table.from_pylist([{"office": "o", "receiver": "r", "last": 1}], RECEIVERS.schema)
    )
    rows = pa.ipc.open_file(pa.memory_map(str(tmp_path / whole.name))).read_all()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        for _ in range(2):
            writer.write_table(rows)
    content = sink.getvalue()
    part = Part(hashlib.sha256(content).hexdigest(), 2)
    (tmp_path / part.name).write_bytes(content)
    with pytest.raises(CorruptionError, match="in several pieces"):
        TableLookup(tmp_path, RECEIVERS.name, [part])
