"""Lookups: lookups over a stack of parts find what reading all of it and filtering finds."""

from __future__ import annotations

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
from roamcast.pipeline.schemas import BINDINGS, NOTIFIED, SUBSCRIPTIONS
from roamcast.pipeline.state.lookups import Ends, Lookups
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


def looked_up(layers: Lookups, columns: Sequence[str], keys: Sequence[tuple[Any, ...]]) -> list[list[dict[str, Any]]]:
    """For each key the rows that were found, by their place."""
    found = layers.find(columns, arrays(columns, keys))
    assert found.key.tolist() == sorted(found.key.tolist())
    rows = layers.take(found.row).to_pylist()
    under: list[list[dict[str, Any]]] = [[] for _ in keys]
    for key, row in zip(found.key.tolist(), rows, strict=True):
        under[key].append(row)
    return [sorted(rows, key=lambda row: (row["node"], row["since"])) for rows in under]


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


def all_alike(columns: Sequence[pa.Array]) -> Any:
    return np.zeros(len(columns[0]), np.uint64)


@pytest.mark.parametrize("collide", [False, True])
@given(pushes=_pushes, questions=st.lists(_questions, max_size=3))
def test_finding_equals_reading_all_and_filtering(collide: bool, pushes: list[Push], questions: list[Any]) -> None:
    """On random stacks, for keys that are there, not there and asked twice; also if all hashes are the same."""
    with tempfile.TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
        if collide:
            patch.setattr("roamcast.pipeline.state.lookups._hashes", all_alike)
        folder = PartFolder(Path(path))
        stack = stack_of(folder, pushes)
        rows = folder.read_all(BINDINGS, stack).to_pylist()
        rows.sort(key=lambda row: (row["node"], row["since"]))
        layers = Lookups(folder.folder, BINDINGS.name, stack)
        for columns, keys in questions:
            expected = [[row for row in rows if tuple(row[column] for column in columns) == key] for key in keys]
            assert looked_up(layers, columns, keys) == expected


@given(pushes=_pushes, data=st.data())
def test_rows_are_taken_in_the_order_asked(pushes: list[Push], data: st.DataObject) -> None:
    """Any of them, as often as they are named, whatever parts they lie in."""
    with tempfile.TemporaryDirectory() as path:
        folder = PartFolder(Path(path))
        layers = Lookups(folder.folder, BINDINGS.name, stack_of(folder, pushes))
        places = sorted({place for push in pushes for place in push})
        found = layers.find(("node", "since"), arrays(("node", "since"), places))
        assert found.key.tolist() == list(range(len(places)))
        wanted = data.draw(st.lists(st.sampled_from(range(len(places))), max_size=12) if places else st.just([]))
        rows = found.row[np.array(wanted, np.int64)]
        for columns in (None, ("since", "node")):
            taken = layers.take(rows, columns)
            assert [(row["node"], row["since"]) for row in taken.to_pylist()] == [places[number] for number in wanted]
            assert taken.schema.names == list(columns or BINDINGS.schema.names)


def test_a_row_keeps_its_number_wherever_the_parts_are_opened(tmp_path: Path) -> None:
    """What an executor found the driver can take."""
    stack = stack_of(PartFolder(tmp_path), [{("n", 1): None, ("n", 2): None}, {("n", 3): None, ("n", 1): 4}])
    keys = arrays(("node", "since"), [("n", 3), ("n", 1)])
    found = Lookups(tmp_path, BINDINGS.name, stack).find(("node", "since"), keys)
    again = PartFolder(tmp_path / "copy")
    again.folder.mkdir()
    for part in stack:
        (again.folder / part.name).write_bytes((tmp_path / part.name).read_bytes())
    rows = Lookups(again.folder, BINDINGS.name, stack).take(found.row).to_pylist()
    assert [(row["since"], row["until"]) for row in rows] == [(3, None), (1, 4)]


def test_columns_are_compared_one_by_one(tmp_path: Path) -> None:
    """Keys that only look alike when joined are different keys."""
    names = [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", "")]
    rows = [{"node": node, "id": id, "last": number} for number, (node, id) in enumerate(names)]
    part = PartFolder(tmp_path).write(NOTIFIED, pa.Table.from_pylist(rows, NOTIFIED.schema))
    layers = Lookups(tmp_path, NOTIFIED.name, (part,))
    found = layers.find(NOTIFIED.keys, [pa.array([name[i] for name in names], pa.string()) for i in range(2)])
    assert layers.take(found.row, ("last",)).to_pydict() == {"last": [0, 1, 2, 3]}


def test_where_nothing_is_nothing_is_found(tmp_path: Path) -> None:
    """Without parts there are no rows, but all columns that were asked for."""
    layers = Lookups(tmp_path, BINDINGS.name, ())
    found = layers.find(("node", "source"), arrays(("node", "source"), [("n", "a")]))
    assert (found.key.tolist(), found.row.tolist()) == ([], [])
    assert layers.take(found.row).equals(BINDINGS.schema.empty_table())
    assert layers.take(found.row, ("source", "end")).schema.names == ["source", "end"]


def test_a_damaged_part_is_never_used(tmp_path: Path) -> None:
    """Lookups verify what they open."""
    (part,) = stack_of(PartFolder(tmp_path), [{("n", 1): None}])
    (tmp_path / part.name).write_bytes(b"other")
    with pytest.raises(CorruptionError, match="a part of the state is damaged"):
        Lookups(tmp_path, BINDINGS.name, (part,))


@given(pushes=_pushes, offset=st.integers(0, 9), time=st.integers(0, 40))
def test_what_ended_before_is_left_out_and_nothing_else(pushes: list[Push], offset: int, time: int) -> None:
    """All that is live or ended later is found; whatever is found is in force, and not an older state of it."""
    keys = [(node, name) for node in NODES for name in NAMES]
    with tempfile.TemporaryDirectory() as folder:
        parts = PartFolder(Path(folder))
        layers = Lookups(parts.folder, BINDINGS.name, stack_of(parts, pushes))
        columns = arrays(("node", "source"), keys)
        ends = Ends(np.full(len(keys), offset), np.full(len(keys), time))
        found = {
            row["node"] + str(row["since"]): row
            for row in layers.take(layers.find(("node", "source"), columns, ends).row).to_pylist()
        }
        rows = layers.take(layers.find(("node", "source"), columns).row).to_pylist()
        alive = layers.take(layers.find(("node", "source"), columns, Ends.all(len(keys))).row).to_pylist()
    known = {row["node"] + str(row["since"]): row for row in rows}
    wanted = {key for key, row in known.items() if row["until"] is None or row["until"] > offset or row["end"] > time}
    assert wanted <= found.keys()
    assert all(known[key] == row for key, row in found.items())
    assert sorted(map(str, alive)) == sorted(str(row) for row in rows if row["until"] is None)


_handles = st.lists(st.dictionaries(st.integers(0, 12), st.none() | st.integers(1, 9), min_size=1), max_size=4)


def subscriptions(folder: PartFolder, pushes: list[dict[int, int | None]]) -> Lookups:
    """A part for each push of handles and where they end, unmerged, the handles in no order."""
    parts = []
    for push in pushes:
        rows = [
            {"node": "n", "since": 50 - handle, "id": f"s{handle % 5}", "handle": handle, "until": until}
            for handle, until in push.items()
        ]
        parts.append(folder.write(SUBSCRIPTIONS, pa.Table.from_pylist(rows, SUBSCRIPTIONS.schema)))
    return Lookups(folder.folder, SUBSCRIPTIONS.name, parts)


@given(pushes=_handles, asked=st.lists(st.integers(-1, 14)))
def test_handles_are_found_without_an_index(pushes: list[dict[int, int | None]], asked: list[int]) -> None:
    """The rows in force, for handles that are there, not there and asked twice; nothing is hashed for it."""

    def unused(columns: Sequence[pa.Array]) -> Any:
        raise AssertionError("hashed")

    with tempfile.TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr("roamcast.pipeline.state.lookups._hashes", unused)
        layers = subscriptions(PartFolder(Path(path)), pushes)
        found = layers.find(("handle",), [pa.array(asked, pa.int64())])
        rows = layers.take(found.row, ("handle", "until")).to_pylist()
    newest = {handle: until for push in pushes for handle, until in push.items()}
    expected = [(n, {"handle": h, "until": newest[h]}) for n, h in enumerate(asked) if h in newest]
    assert list(zip(found.key.tolist(), rows, strict=True)) == expected


@given(pushes=_handles, names=st.lists(st.integers(0, 6), min_size=1, unique=True), live=st.booleans())
def test_scanning_finds_what_an_index_finds(pushes: list[dict[int, int | None]], names: list[int], live: bool) -> None:
    """Of all rows, or of the live ones alone."""
    keys = [pa.array(["n"] * len(names), pa.string()), pa.array([f"s{name}" for name in names])]
    ends = Ends.all(len(names)) if live else None
    with tempfile.TemporaryDirectory() as path:
        layers = subscriptions(PartFolder(Path(path)), pushes)
        scanned = layers.find(("node", "id"), keys, ends, scan=True)
        found = layers.find(("node", "id"), keys, ends)
        rows = layers.take(found.row, ("handle", "until")).to_pylist()
    assert (scanned.key.tolist(), scanned.row.tolist()) == (found.key.tolist(), found.row.tolist())
    newest = {handle: until for push in pushes for handle, until in push.items()}
    wanted = {h for h, until in newest.items() if h % 5 in names and not (live and until is not None)}
    assert sorted(row["handle"] for row in rows) == sorted(wanted)
