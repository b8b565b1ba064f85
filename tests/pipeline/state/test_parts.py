"""Parts: a stack of immutable files behaves like one table."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.errors import CorruptionError
from roamcast.pipeline.schemas import RECEIVERS, SOURCES, SUBSCRIPTIONS
from roamcast.pipeline.state.parts import Part, PartFolder


@pytest.fixture
def folder(tmp_path: Path) -> PartFolder:
    return PartFolder(tmp_path)


def numbers(last_numbers: dict[tuple[str, str], int]) -> pa.Table:
    """Rows of RECEIVERS."""
    rows = [{"office": office, "receiver": name, "last": last} for (office, name), last in last_numbers.items()]
    return pa.Table.from_pylist(rows, RECEIVERS.schema)


def subscriptions(*rows: tuple[int, int | None], node: str = "n") -> pa.Table:
    """Rows of SUBSCRIPTIONS, each (since, removed_in)."""
    values = [{"node": node, "since": since, "id": f"s{since}", "removed_in": ended} for since, ended in rows]
    return pa.Table.from_pylist(values, SUBSCRIPTIONS.schema)


def ends(folder: PartFolder, stack: tuple[Part, ...]) -> dict[int, int | None]:
    """The batch in which each subscription in the stack ended."""
    rows = folder.read_all(SUBSCRIPTIONS, stack).to_pylist()
    return {row["since"]: row["removed_in"] for row in rows}


def push(folder: PartFolder, stack: tuple[Part, ...], rows: pa.Table, batch: int) -> tuple[Part, ...]:
    """Push rows; those that ended before `batch` are obsolete."""

    def obsolete(rows: pa.Table) -> npt.NDArray[np.bool_]:
        return np.array([removed not in (None, batch) for removed in rows["removed_in"].to_pylist()], np.bool_)

    return folder.push(SUBSCRIPTIONS, stack, rows, obsolete)


def test_a_stack_stays_logarithmic(folder: PartFolder) -> None:
    """Each part is more than twice as large as the next newer one, whatever was pushed."""
    stack: tuple[Part, ...] = ()
    for batch in range(80):
        rows = numbers({("o", f"{batch}.{row}"): 1 for row in range(1 + batch * 7 % 5)})
        stack = folder.push(RECEIVERS, stack, rows)
        assert all(lower.rows > 2 * upper.rows for lower, upper in pairwise(stack))
    assert len(folder.read_all(RECEIVERS, stack)) == sum(1 + batch * 7 % 5 for batch in range(80))


def test_no_rows_add_no_part(folder: PartFolder) -> None:
    """The stack does not change."""
    stack = folder.push(RECEIVERS, (), numbers({("o", "ann"): 1}))
    assert folder.push(RECEIVERS, stack, numbers({})) == stack


def test_an_empty_stack_is_an_empty_table(folder: PartFolder) -> None:
    """With all columns."""
    assert folder.read_all(RECEIVERS, ()).schema.equals(RECEIVERS.schema)


def test_the_newest_row_of_a_key_counts(folder: PartFolder) -> None:
    """Whether the parts are merged or not."""
    large = {("o", f"{n}"): n for n in range(10)}
    stack = folder.push(RECEIVERS, (), numbers(large))
    stack = folder.push(RECEIVERS, stack, numbers({("o", "3"): 33, ("p", "3"): 1}))
    assert len(stack) == 2
    expected = {**large, ("o", "3"): 33, ("p", "3"): 1}
    assert folder.read_all(RECEIVERS, stack).num_rows == 11
    assert as_dict(folder, stack) == expected
    assert as_dict(folder, folder.push(RECEIVERS, stack, numbers(large))) == {**expected, ("o", "3"): 3}


def as_dict(folder: PartFolder, stack: tuple[Part, ...]) -> dict[tuple[str, str], int]:
    rows = folder.read_all(RECEIVERS, stack).to_pylist()
    return {(row["office"], row["receiver"]): row["last"] for row in rows}


def test_keys_are_compared_column_by_column(folder: PartFolder) -> None:
    """Keys that are equal when concatenated are different."""
    stack = folder.push(RECEIVERS, (), numbers({("a", "bc"): 1, ("ab", "c"): 2, ("", "abc"): 3, ("é", ""): 4}))
    assert folder.read_all(RECEIVERS, stack).num_rows == 4


def test_an_ended_row_is_kept_in_its_batch(folder: PartFolder) -> None:
    """Even if all parts are merged."""
    stack = push(folder, (), subscriptions((1, None)), 0)
    stack = push(folder, stack, subscriptions((1, 1)), 1)
    assert ends(folder, stack) == {1: 1}


def test_an_ended_row_is_deleted_after_its_batch(folder: PartFolder) -> None:
    """By the next merge of all parts."""
    stack = push(folder, (), subscriptions((1, None)), 0)
    stack = push(folder, stack, subscriptions((1, 1)), 1)
    stack = push(folder, stack, subscriptions((2, None)), 2)
    assert ends(folder, stack) == {2: None}


def test_an_ended_row_stays_while_an_older_part_has_its_key(folder: PartFolder) -> None:
    """A partial merge must not uncover the older row."""
    stack = push(folder, (), subscriptions(*((n, None) for n in range(1, 20))), 0)
    stack = push(folder, stack, subscriptions((1, 1)), 1)
    stack = push(folder, stack, subscriptions((20, None)), 2)
    assert [part.rows for part in stack] == [19, 2]
    assert ends(folder, stack)[1] == 1


def test_a_stack_of_ended_rows_becomes_empty(folder: PartFolder) -> None:
    """Once everything has ended and all parts are merged."""
    stack = push(folder, (), subscriptions((1, None), (2, None)), 0)
    stack = push(folder, stack, subscriptions((1, 1), (2, 1)), 1)
    stack = push(folder, stack, subscriptions((3, 2)), 2)
    stack = push(folder, stack, subscriptions((3, 2)), 3)
    assert stack == ()


def test_rows_are_kept_by_default(folder: PartFolder) -> None:
    """Without a function that tells which are obsolete."""
    stack = folder.push(SUBSCRIPTIONS, (), subscriptions((1, 1)))
    assert ends(folder, folder.push(SUBSCRIPTIONS, stack, subscriptions((2, None)))) == {1: 1, 2: None}


def test_only_newest_rows_are_checked_for_obsolescence(folder: PartFolder) -> None:
    """And only if all parts are merged."""
    checked = []

    def obsolete(rows: pa.Table) -> npt.NDArray[np.bool_]:
        checked.append(sorted((row["since"], row["removed_in"]) for row in rows.to_pylist()))
        return np.zeros(rows.num_rows, np.bool_)

    stack = folder.push(SUBSCRIPTIONS, (), subscriptions(*((n, 0) for n in range(1, 9))), obsolete)
    for since in (1, 9):
        stack = folder.push(SUBSCRIPTIONS, stack, subscriptions((since, 7)), obsolete)
    assert (checked, len(stack)) == ([], 2)
    folder.push(SUBSCRIPTIONS, stack, subscriptions(*((n, 7) for n in range(10, 14))), obsolete)
    assert checked == [[(1, 7), *((n, 0) for n in range(2, 9)), *((n, 7) for n in range(9, 14))]]


_rows = st.dictionaries(st.integers(1, 12), st.booleans(), max_size=8)


@given(pushes=st.lists(_rows, max_size=12))
def test_any_pushes_equal_a_dict(pushes: list[dict[int, bool]]) -> None:
    """For live rows and rows that ended in the newest batch; no ended row comes back."""
    model: dict[int, int | None] = {}
    with tempfile.TemporaryDirectory() as path:
        folder = PartFolder(Path(path))
        stack: tuple[Part, ...] = ()
        for batch, changed in enumerate(pushes):
            model = {since: ended for since, ended in model.items() if ended is None}
            rows = {since: batch if ended else None for since, ended in changed.items()}
            model.update(rows)
            stack = push(folder, stack, subscriptions(*rows.items()), batch)
            found = ends(folder, stack)
            assert {s: e for s, e in found.items() if e in (None, batch)} == model
            assert all(lower.rows > 2 * upper.rows for lower, upper in pairwise(stack))


@given(
    pushes=st.lists(
        st.dictionaries(st.tuples(st.sampled_from(["a", "ab", ""]), st.sampled_from(["b", "", "bé"])), st.integers(1)),
        max_size=8,
    )
)
def test_any_numbers_pushed_equal_a_dict(pushes: list[dict[tuple[str, str], int]]) -> None:
    """A table without deletion is the union of its pushes; later rows win."""
    model: dict[tuple[str, str], int] = {}
    with tempfile.TemporaryDirectory() as path:
        folder = PartFolder(Path(path))
        stack: tuple[Part, ...] = ()
        for push in pushes:
            push = {key: value % 2**62 for key, value in push.items()}
            model.update(push)
            stack = folder.push(RECEIVERS, stack, numbers(push))
            assert as_dict(folder, stack) == model


def test_the_same_rows_make_the_same_part(folder: PartFolder) -> None:
    """A part is named by its content, however its rows are chunked."""
    rows = numbers({("o", "ann"): 1, ("o", "bob"): 2})
    chunked = pa.concat_tables([rows.slice(0, 1), rows.slice(1)])
    assert folder.write(RECEIVERS, rows) == folder.write(RECEIVERS, chunked)
    assert folder.write(RECEIVERS, rows) != folder.write(RECEIVERS, numbers({("o", "ann"): 1, ("o", "bob"): 3}))


def flip(content: bytes) -> bytes:
    return content[:200] + bytes([content[200] ^ 1]) + content[201:]


FAULTS: dict[str, Callable[[Path], Any]] = {
    "missing": lambda path: path.unlink(),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-10]),
    "empty": lambda path: path.write_bytes(b""),
    "a bit flipped": lambda path: path.write_bytes(flip(path.read_bytes())),
}


def test_several_attempts_may_write_the_same_part(folder: PartFolder) -> None:
    """At the same time: attempts at one task, on a host or on several."""
    rows = numbers({("o", f"{n}"): n for n in range(20_000)})
    with ThreadPoolExecutor(8) as pool:
        (part,) = set(pool.map(lambda _: folder.write(RECEIVERS, rows), range(64)))
    assert folder.read(RECEIVERS, part).num_rows == 20_000
    assert [path.name for path in folder.folder.iterdir()] == [part.name]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_part_is_never_used(folder: PartFolder, fault: str) -> None:
    """The error names the file and has a hint."""
    part = folder.write(RECEIVERS, numbers({("o", "ann"): 1}))
    FAULTS[fault](folder.folder / part.name)
    with pytest.raises(CorruptionError, match=r"a part of the state is (missing|damaged).*--new") as caught:
        folder.read(RECEIVERS, part)
    assert caught.value.where == str(folder.folder / part.name)


def test_a_part_of_another_table_is_refused(folder: PartFolder) -> None:
    """A part names its table."""
    part = folder.write(RECEIVERS, numbers({("o", "ann"): 1}))
    with pytest.raises(CorruptionError, match="not a roamcast-part/9 part of sources"):
        folder.read(SOURCES, part)


def test_sweeping_deletes_other_files(folder: PartFolder) -> None:
    """Unused parts, and files that a crash left incomplete."""
    kept, other = (folder.write(RECEIVERS, numbers({("o", name): 1})) for name in ("ann", "bob"))
    (folder.folder / f"{other.name}.tmp").write_bytes(b"half")
    folder.sweep(frozenset({kept.name}))
    assert [path.name for path in folder.folder.iterdir()] == [kept.name]


def test_subscriptions_are_sorted_by_handle(folder: PartFolder) -> None:
    """When they are written, and after a merge."""
    rows = [{"node": "n", "since": since, "handle": handle} for since, handle in ((1, 5), (2, 3), (3, 9))]
    stack = folder.push(SUBSCRIPTIONS, (), pa.Table.from_pylist(rows, SUBSCRIPTIONS.schema))
    assert folder.read(SUBSCRIPTIONS, stack[0])["handle"].to_pylist() == [3, 5, 9]
    more = [{"node": "n", "since": 4, "handle": 4}, {"node": "n", "since": 2, "handle": 3, "until": 7}]
    (part,) = folder.push(SUBSCRIPTIONS, stack, pa.Table.from_pylist(more, SUBSCRIPTIONS.schema))
    merged = folder.read(SUBSCRIPTIONS, part)
    assert (merged["handle"].to_pylist(), merged["until"].to_pylist()) == ([3, 4, 5, 9], [7, None, None, None])


def test_shared_texts_are_written_once(folder: PartFolder) -> None:
    """An area of many rows takes the space of one. A single row does not bring the areas of others."""
    rows = [{"node": "n", "since": n, "handle": n, "area": "ab"[n % 2] * 10_000} for n in range(1, 101)]
    table = pa.Table.from_pylist(rows, SUBSCRIPTIONS.schema)
    part = folder.write(SUBSCRIPTIONS, table)
    assert (folder.folder / part.name).stat().st_size < 60_000
    one = folder.write(SUBSCRIPTIONS, folder.read(SUBSCRIPTIONS, part).slice(0, 1))
    assert (folder.folder / one.name).stat().st_size < 18_000
    assert folder.read(SUBSCRIPTIONS, one)["area"].to_pylist() == ["b" * 10_000]


_pushes = st.lists(
    st.dictionaries(st.tuples(st.just("o"), st.sampled_from("abcdefgh")), st.integers(1, 99), max_size=8), max_size=12
)


@given(_pushes, st.integers(0, 12))
def test_parts_that_would_become_too_large_are_left_alone(pushes: list[dict[tuple[str, str], int]], most: int) -> None:
    """The stack still has the newest row of each key. `merge` makes up for it."""
    with tempfile.TemporaryDirectory() as path:
        folder, expected = PartFolder(Path(path)), {}
        stack: tuple[Part, ...] = ()
        for last_numbers in pushes:
            before = stack
            stack = folder.push(RECEIVERS, before, numbers(last_numbers), largest=most)
            expected |= last_numbers
            assert as_dict(folder, stack) == expected
            new = [part for part in stack if part not in before]
            assert all(part.rows <= max(most, len(last_numbers)) for part in new)
            assert set(stack) >= {part for part in before if part.rows > most}
        merged = folder.merge(RECEIVERS, stack)
        assert as_dict(folder, merged) == expected
        assert all(lower.rows > 2 * upper.rows for lower, upper in pairwise(merged))
        assert merged == folder.merge(RECEIVERS, merged)


def test_parts_of_nearly_the_largest_size_are_not_written_again_for_a_few_rows(folder: PartFolder) -> None:
    """What is above them is merged as ever: a row is written a logarithmic number of times, and stacks stay short."""
    stack: tuple[Part, ...] = ()
    written = 0
    for batch in range(600):
        before, rows = stack, numbers({("o", f"{batch}.{row}"): 1 for row in range(3)})
        stack = folder.push(RECEIVERS, before, rows, largest=200)
        written += sum(part.rows for part in stack if part not in before)
        sizes = [part.rows for part in stack]
        assert len(sizes) <= 2 * sum(sizes) // 200 + 8
    assert max(sizes) <= 200
    assert written <= 8 * sum(sizes)
    nearly = tuple(folder.write(RECEIVERS, numbers({(name, f"{row}"): 1 for row in range(90)})) for name in "ab")
    once = folder.push(RECEIVERS, nearly, numbers({("o", "ann"): 1}), largest=100)
    assert once[:2] == nearly
    assert len(folder.push(RECEIVERS, once, numbers({("o", "bob"): 1}), largest=100)) == 3
