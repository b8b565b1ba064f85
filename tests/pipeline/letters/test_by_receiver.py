"""`Every`: letters that come too soon are dropped."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from profiles import thorough

from roamcast.pipeline.letters.by_receiver import Throttle
from roamcast.pipeline.schemas import LAST_SENT, PENDING_SCHEMA
from roamcast.pipeline.state.lookups import TableLookup
from roamcast.pipeline.state.parts import PartFolder

Key = tuple[str, str, str]


def throttle(
    pending: pa.Table, before: Mapping[Key, int], removed: Mapping[Key, int], portions: int = 1
) -> tuple[pa.Table, dict[Key, int | None]]:
    """The letters that are kept, and what changes of `before`, if the letters come in some portions."""
    rows = [dict(zip(LAST_SENT.schema.names, (*key, last), strict=True)) for key, last in before.items()]
    with tempfile.TemporaryDirectory() as path:
        folder = PartFolder(Path(path))
        stack = folder.push(LAST_SENT, (), pa.Table.from_pylist(rows, LAST_SENT.schema))
        throttle = Throttle(removed)
        kept, changed = [], {}

        def lookup() -> TableLookup:
            return TableLookup(folder.folder, LAST_SENT.name, stack)

        for portion in range(portions):
            first, end = (pending.num_rows * number // portions for number in (portion, portion + 1))
            letters, changes = throttle.keep(pending.slice(first, end - first), lookup())
            kept.append(letters)
            stack = folder.push(LAST_SENT, stack, changes)
            changed |= last_sent(changes)
        return pa.concat_tables(kept), changed | last_sent(throttle.end(lookup(), lambda keys: keys))


def last_sent(rows: pa.Table) -> dict[Key, int | None]:
    return {(row["node"], row["id"], row["receiver"]): row["last"] for row in rows.to_pylist()}


def throttled_rows(rows: Sequence[tuple[str, str, int, int | None]]) -> pa.Table:
    """Pending letters (office, subscription, time, every) to one receiver, in order."""
    names = ("office", "subscription", "time", "every")
    same = {"node": "local", "receiver": "ann"}
    plain = [{**same, "offset": n, **dict(zip(names, row, strict=True))} for n, row in enumerate(rows)]
    return pa.Table.from_pylist(plain, PENDING_SCHEMA)


def test_one_letter_of_each_period_is_kept() -> None:
    """Between the events of letters that are kept is at least the period."""
    rows = throttled_rows([("local", "s1", time, 10) for time in (100, 109, 110, 119, 135, 140)])
    kept, last_sent = throttle(rows, {}, {})
    assert kept["time"].to_pylist() == [100, 110, 135]
    assert last_sent == {("local", "s1", "ann"): 135}


def test_earlier_batches_count() -> None:
    """Only changes are returned."""
    rows = throttled_rows([("local", "s1", 99, 10), ("local", "s2", 99, 10), ("south", "s1", 99, 10)])
    kept, last_sent = throttle(rows, {("local", "s1", "ann"): 90, ("local", "s2", "ann"): 89}, {})
    assert kept["offset"].to_pylist() == [1, 2]
    assert last_sent == {("local", "s2", "ann"): 99, ("south", "s1", "ann"): 99}


def test_an_event_in_the_future_suppresses_nothing() -> None:
    """An event long before the last one is sent, too."""
    kept, last_sent = throttle(throttled_rows([("local", "s1", time, 10) for time in (900, 100, 105, 891)]), {}, {})
    assert (kept["time"].to_pylist(), last_sent) == ([900, 100, 891], {("local", "s1", "ann"): 891})


def test_after_a_removal_a_new_period_starts() -> None:
    """From its offset on, for events of its own node. A removed subscription without letters is cleared."""
    rows = throttled_rows([("local", "s1", 100 + n, 10) for n in range(4)])
    before = {("local", "s1", "ann"): 95, ("local", "s2", "ann"): 50}
    kept, last_sent = throttle(rows, before, {("local", f"s{n}", "ann"): 1 for n in (1, 2, 3)})
    assert kept["offset"].to_pylist() == [2]
    assert last_sent == {("local", "s1", "ann"): 102, ("local", "s2", "ann"): None}


def test_without_a_period_all_letters_are_kept() -> None:
    """Among others that have one, and alone."""
    free, limited = ("local", "s0", 1, None), ("local", "s1", 1, 10)
    rows = throttled_rows([free, limited, free, limited])
    assert throttle(rows, {}, {})[0]["offset"].to_pylist() == [0, 1, 2]
    alone = throttled_rows([free] * 2)
    assert throttle(alone, {("local", "s0", "ann"): 99}, {}) == (alone, {})
    assert throttle(throttled_rows([]), {}, {}) == (PENDING_SCHEMA.empty_table(), {})


_names = st.tuples(st.sampled_from(["local", "south"]), st.sampled_from(["s1", "s2"]), st.just("ann"))
_periods = {("local", "s1"): 5, ("local", "s2"): None, ("south", "s1"): 1, ("south", "s2"): 12}


@thorough()
@given(
    rows=st.lists(st.tuples(_names, st.integers(0, 40)), max_size=20),
    before=st.dictionaries(_names, st.integers(0, 30)),
    portions=st.integers(1, 4),
)
def test_throttling_equals_a_plain_loop(rows: list[tuple[Key, int]], before: Mapping[Key, int], portions: int) -> None:
    """Letter by letter, depending on the last one that was kept; however the letters are divided."""
    memory, expected = dict(before), []
    for number, (name, time) in enumerate(rows):
        every = _periods[name[:2]]
        if every is None or name not in memory or abs(time - memory[name]) >= every:
            expected.append(number)
            if every is not None:
                memory[name] = time
    pending = throttled_rows([(*name[:2], time, _periods[name[:2]]) for name, time in rows])
    kept, changed = throttle(pending, before, {}, portions)
    assert kept["offset"].to_pylist() == expected
    assert {**before, **changed} == memory


def test_a_removal_starts_one_period_whatever_the_portions() -> None:
    """Letters after it in later portions do not start it again."""
    rows = throttled_rows([("local", "s1", 100 + n, 10) for n in range(6)])
    for portions in range(1, 7):
        kept, changed = throttle(rows, {("local", "s1", "ann"): 95}, {("local", "s1", "ann"): 1}, portions)
        assert kept["offset"].to_pylist() == [2]
        assert changed == {("local", "s1", "ann"): 102}
