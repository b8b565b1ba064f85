"""Parts: stacks of immutable files that behave like one table."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
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


def numbers(given: dict[tuple[str, str], int]) -> pa.Table:
    """Rows of RECEIVERS."""
    rows = [{"office": office, "receiver": name, "last": last} for (office, name), last in given.items()]
    return pa.Table.from_pylist(rows, RECEIVERS.schema)


def wishes(*rows: tuple[int, int | None], node: str = "n") -> pa.Table:
    """Rows of SUBSCRIPTIONS, each (since, removed_in)."""
    made = [{"node": node, "since": since, "id": f"s{since}", "removed_in": ended} for since, ended in rows]
    return pa.Table.from_pylist(made, SUBSCRIPTIONS.schema)


def ends(folder: PartFolder, stack: tuple[Part, ...]) -> dict[int, int | None]:
    """In which batch each subscription in the stack ended."""
    rows = folder.read_all(SUBSCRIPTIONS, stack).to_pylist()
    return {row["since"]: row["removed_in"] for row in rows}


def push(folder: PartFolder, stack: tuple[Part, ...], rows: pa.Table, batch: int) -> tuple[Part, ...]:
    """What ended before `batch` need not be kept."""

    def ended(given: pa.Table) -> npt.NDArray[np.bool_]:
        return np.array([removed not in (None, batch) for removed in given["removed_in"].to_pylist()], np.bool_)

    return folder.push(SUBSCRIPTIONS, stack, rows, ended)


def test_a_stack_stays_logarithmic(folder: PartFolder) -> None:
    """Each part is more than twice as large as the one above it, whatever number of rows was pushed."""
    stack: tuple[Part, ...] = ()
    for batch in range(80):
        rows = numbers({("o", f"{batch}.{row}"): 1 for row in range(1 + batch * 7 % 5)})
        stack = folder.push(RECEIVERS, stack, rows)
        assert all(lower.rows > 2 * upper.rows for lower, upper in pairwise(stack))
    assert len(folder.read_all(RECEIVERS, stack)) == sum(1 + batch * 7 % 5 for batch in range(80))


def test_no_rows_add_no_part(folder: PartFolder) -> None:
    """A batch that writes nothing leaves the stack as it is."""
    stack = folder.push(RECEIVERS, (), numbers({("o", "ann"): 1}))
    assert folder.push(RECEIVERS, stack, numbers({})) == stack


def test_an_empty_stack_is_an_empty_table(folder: PartFolder) -> None:
    """Without parts there are no rows, but all columns."""
    assert folder.read_all(RECEIVERS, ()).schema.equals(RECEIVERS.schema)


def test_the_newest_row_of_a_key_counts(folder: PartFolder) -> None:
    """A later row replaces the earlier one with the same key, merged into one part or not."""
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
    """Keys whose columns only look alike when joined are different keys."""
    stack = folder.push(RECEIVERS, (), numbers({("a", "bc"): 1, ("ab", "c"): 2, ("", "abc"): 3, ("é", ""): 4}))
    assert folder.read_all(RECEIVERS, stack).num_rows == 4


def test_an_ended_row_counts_in_its_batch(folder: PartFolder) -> None:
    """A row that ends is still there in the batch in which it ends, even at the bottom of a stack."""
    stack = push(folder, (), wishes((1, None)), 0)
    stack = push(folder, stack, wishes((1, 1)), 1)
    assert ends(folder, stack) == {1: 1}


def test_an_ended_row_vanishes_after_its_batch(folder: PartFolder) -> None:
    """Once its batch is over, a merge at the bottom leaves it out."""
    stack = push(folder, (), wishes((1, None)), 0)
    stack = push(folder, stack, wishes((1, 1)), 1)
    stack = push(folder, stack, wishes((2, None)), 2)
    assert ends(folder, stack) == {2: None}


def test_an_ended_row_stays_while_a_lower_part_holds_its_key(folder: PartFolder) -> None:
    """Merging above the bottom keeps what says that a row below has ended."""
    stack = push(folder, (), wishes(*((n, None) for n in range(1, 20))), 0)
    stack = push(folder, stack, wishes((1, 1)), 1)
    stack = push(folder, stack, wishes((20, None)), 2)
    assert [part.rows for part in stack] == [19, 2]
    assert ends(folder, stack)[1] == 1


def test_a_stack_of_ended_rows_becomes_empty(folder: PartFolder) -> None:
    """When everything has ended and a merge comes along, no part is left but the new row's."""
    stack = push(folder, (), wishes((1, None), (2, None)), 0)
    stack = push(folder, stack, wishes((1, 1), (2, 1)), 1)
    stack = push(folder, stack, wishes((3, 2)), 2)
    stack = push(folder, stack, wishes((3, 2)), 3)
    assert stack == ()


def test_a_table_may_keep_what_ended(folder: PartFolder) -> None:
    """Where nobody says what need not be kept, everything is."""
    stack = folder.push(SUBSCRIPTIONS, (), wishes((1, 1)))
    assert ends(folder, folder.push(SUBSCRIPTIONS, stack, wishes((2, None)))) == {1: 1, 2: None}


def test_only_the_newest_row_of_a_key_is_asked_about(folder: PartFolder) -> None:
    """And only where a merge reaches the bottom, with all the rows that are left."""
    asked = []

    def ended(rows: pa.Table) -> npt.NDArray[np.bool_]:
        asked.append(sorted((row["since"], row["removed_in"]) for row in rows.to_pylist()))
        return np.zeros(rows.num_rows, np.bool_)

    stack = folder.push(SUBSCRIPTIONS, (), wishes(*((n, 0) for n in range(1, 9))), ended)
    for since in (1, 9):
        stack = folder.push(SUBSCRIPTIONS, stack, wishes((since, 7)), ended)
    assert (asked, len(stack)) == ([], 2)
    folder.push(SUBSCRIPTIONS, stack, wishes(*((n, 7) for n in range(10, 14))), ended)
    assert asked == [[(1, 7), *((n, 0) for n in range(2, 9)), *((n, 7) for n in range(9, 14))]]


_rows = st.dictionaries(st.integers(1, 12), st.booleans(), max_size=8)


@given(pushes=st.lists(_rows, max_size=12))
def test_any_pushes_equal_a_dict(pushes: list[dict[int, bool]]) -> None:
    """Live rows, and rows that end in the newest batch, are those of a dict; nothing that ended comes back."""
    model: dict[int, int | None] = {}
    with tempfile.TemporaryDirectory() as path:
        folder = PartFolder(Path(path))
        stack: tuple[Part, ...] = ()
        for batch, changed in enumerate(pushes):
            model = {since: ended for since, ended in model.items() if ended is None}
            rows = {since: batch if ended else None for since, ended in changed.items()}
            model.update(rows)
            stack = push(folder, stack, wishes(*rows.items()), batch)
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
    """A table without removal is the union of its pushes, later ones first."""
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
    """A part's name is that of its content, however its rows are chunked."""
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


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_part_is_never_used(folder: PartFolder, fault: str) -> None:
    """What does not match its checksum, or is not there, is corruption that names the file and a way out."""
    part = folder.write(RECEIVERS, numbers({("o", "ann"): 1}))
    FAULTS[fault](folder.folder / part.name)
    with pytest.raises(CorruptionError, match=r"a part of the state is (missing|damaged).*--new") as caught:
        folder.read(RECEIVERS, part)
    assert caught.value.where == str(folder.folder / part.name)


def test_a_part_of_another_table_is_refused(folder: PartFolder) -> None:
    """A part says which table it belongs to."""
    part = folder.write(RECEIVERS, numbers({("o", "ann"): 1}))
    with pytest.raises(CorruptionError, match="not a roamcast-part/6 part of sources"):
        folder.read(SOURCES, part)


def test_sweeping_keeps_only_what_is_named(folder: PartFolder) -> None:
    """Parts that nobody refers to, and what a crash left half-written, are removed."""
    kept, other = (folder.write(RECEIVERS, numbers({("o", name): 1})) for name in ("ann", "bob"))
    (folder.folder / f"{other.name}.tmp").write_bytes(b"half")
    folder.sweep(frozenset({kept.name}))
    assert [path.name for path in folder.folder.iterdir()] == [kept.name]


def test_subscriptions_lie_in_the_order_of_their_handles(folder: PartFolder) -> None:
    """However they came, and after a merge."""
    rows = [{"node": "n", "since": since, "handle": handle} for since, handle in ((1, 5), (2, 3), (3, 9))]
    stack = folder.push(SUBSCRIPTIONS, (), pa.Table.from_pylist(rows, SUBSCRIPTIONS.schema))
    assert folder.read(SUBSCRIPTIONS, stack[0])["handle"].to_pylist() == [3, 5, 9]
    more = [{"node": "n", "since": 4, "handle": 4}, {"node": "n", "since": 2, "handle": 3, "until": 7}]
    (part,) = folder.push(SUBSCRIPTIONS, stack, pa.Table.from_pylist(more, SUBSCRIPTIONS.schema))
    merged = folder.read(SUBSCRIPTIONS, part)
    assert (merged["handle"].to_pylist(), merged["until"].to_pylist()) == ([3, 4, 5, 9], [7, None, None, None])


def test_what_rows_share_is_written_once(folder: PartFolder) -> None:
    """An area that many ask for costs as much as one; a row taken out of them brings no area of others."""
    rows = [{"node": "n", "since": n, "handle": n, "area": "ab"[n % 2] * 10_000} for n in range(1, 101)]
    table = pa.Table.from_pylist(rows, SUBSCRIPTIONS.schema)
    part = folder.write(SUBSCRIPTIONS, table)
    assert (folder.folder / part.name).stat().st_size < 60_000
    one = folder.write(SUBSCRIPTIONS, folder.read(SUBSCRIPTIONS, part).slice(0, 1))
    assert (folder.folder / one.name).stat().st_size < 18_000
    assert folder.read(SUBSCRIPTIONS, one)["area"].to_pylist() == ["b" * 10_000]
