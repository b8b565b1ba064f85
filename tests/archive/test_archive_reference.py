"""Whatever is archived, compacted and asked: a reader finds what filtering all records finds."""

from __future__ import annotations

from archives import HOUR, START, Journals, event, memory_storage, track
from hypothesis import given
from hypothesis import strategies as st

from roamcast.archive.cells import Cell, split_by_cell
from roamcast.archive.compaction import CompactionLimits
from roamcast.journal.records import EVENT, to_batch
from roamcast.model import Box
from roamcast.space import contains

COORDINATE = st.floats(-180, 180) | st.integers(-3, 3).map(float)
POINT = st.tuples(COORDINATE, COORDINATE)
SOURCE = st.sampled_from(["s", "t", "s@north"])
BATCH = st.lists(st.tuples(st.sampled_from(["north", "south"]), SOURCE, st.booleans(), POINT), max_size=8)
BOX = st.tuples(COORDINATE, COORDINATE, COORDINATE, COORDINATE).map(
    lambda c: Box(c[0], min(c[1], c[3]), c[2], max(c[1], c[3]))
)


@given(
    st.lists(st.tuples(BATCH, st.booleans()), min_size=1, max_size=8),
    st.none() | BOX,
    st.none() | st.integers(-1, 9),
    st.none() | st.integers(-1, 9),
    st.none() | st.sets(st.sampled_from([("north", "s"), ("south", "t"), ("south", "s")])),
)
def test_a_reader_finds_what_a_filter_finds(
    batches: list[tuple[list[tuple[str, str, bool, tuple[float, float]]], bool]],
    box: Box | None,
    begin: int | None,
    end: int | None,
    sources: set[tuple[str, str]] | None,
) -> None:
    journals = Journals(memory_storage())
    limits = CompactionLimits(recent=1, rows=20, small=4, cell=3, grace=0.0)
    expected = []
    seq = 0
    for number, (rows, compacts) in enumerate(batches):
        records: dict[str, list[object]] = {}
        for node, source, is_event, (x, y) in rows:
            seq += 1
            records.setdefault(node, []).append(event(source, seq, x, y) if is_event else track(source, seq, x, y))
            offset = len(journals.records.get(node, [])) + len(records[node])
            in_box = box is None or bool(contains(*box, x, y))
            home, id = ("north", "s") if "@" in source else (node, source)
            if sources is not None and (home, id) not in sources:
                continue
            if is_event and in_box and (begin is None or begin <= number) and (end is None or number < end):
                expected.append((number, node, offset))
        journals.add(records)  # type: ignore[arg-type]
        if compacts:
            journals.compact(limits)
    times = [None if each is None else START + each * HOUR for each in (begin, end)]
    found = journals.open().events_table(*times, box=box, sources=sources)
    columns = (found[name].to_pylist() for name in ("batch", "node", "offset"))
    assert list(zip(*columns, strict=True)) == sorted(expected)


@given(st.lists(POINT, min_size=1, max_size=40), st.integers(1, 5))
def test_cells_divide_events(points: list[tuple[float, float]], most: int) -> None:
    """Each event is in one cell that contains it, and no cell has too many unless they cannot be told apart."""
    events = [event("s", at, x, y) for at, (x, y) in enumerate(points)]
    assert all(record.kind == EVENT for record in events)
    import pyarrow as pa

    table = pa.Table.from_batches([to_batch("local", 1, events)])
    found: list[int] = []
    cells: set[Cell] = set()
    for cell, rows in split_by_cell(table, most):
        side = 2.0**cell.level
        for row in rows.to_pylist():
            assert cell.column * side <= row["x"] < (cell.column + 1) * side
            assert cell.row * side <= row["y"] < (cell.row + 1) * side
        found += rows["offset"].to_pylist()
        assert cell not in cells
        cells.add(cell)
        assert rows.num_rows <= most or side < 1e-3
    assert sorted(found) == list(range(1, len(points) + 1))
