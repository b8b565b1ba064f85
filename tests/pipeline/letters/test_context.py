"""The letter context and what its steps report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from batches import PureStream, control, match_rows, placed
from hypothesis import given
from hypothesis import strategies as st
from worlds import event, subscription

from roamcast.deliver.batch_records import LetterFile
from roamcast.errors import UnavailableError
from roamcast.journal.records import Record
from roamcast.pipeline.letters import context as module
from roamcast.pipeline.letters.by_receiver import make_letters
from roamcast.pipeline.letters.by_source import address_events
from roamcast.pipeline.letters.context import LetterContext, LetterReport
from roamcast.pipeline.schemas import LAST_SENT, RECEIVERS, SOURCES
from roamcast.pipeline.state.control import DeadLetter
from roamcast.pipeline.state.load import LoadRows
from roamcast.pipeline.state.partitioning import MatchSample
from roamcast.pipeline.state.parts import Part, PartFolder
from roamcast.pipeline.state.state_server import StateFetcher, serve_state
from roamcast.pipeline.tasks.context import MatchContext

_counts = st.integers(0, 2**62)
_names = st.text(max_size=8)
_parts = st.lists(st.builds(Part, _names, _counts), max_size=3).map(tuple)
_dead_letters = st.lists(st.builds(DeadLetter, _names, _counts, _names), max_size=3)
_loads = st.lists(st.tuples(*[st.integers(-1, 2**62)] * 5), max_size=3)
_reports = st.builds(
    LetterReport,
    stacks=st.dictionaries(_names, _parts, max_size=3),
    counters=st.dictionaries(_names, _counts, max_size=3),
    files=st.lists(st.builds(LetterFile, _names, _names, _counts), max_size=3),
    dead_letters=_dead_letters,
    late=_dead_letters,
    load=_loads.map(lambda rows: LoadRows.of_lists(list(zip(*rows, strict=True)) or [[]] * 5)),
    scanned=_counts,
    matches=_counts,
    sample=st.lists(st.builds(MatchSample, _names, _counts, _counts, st.lists(_counts, max_size=3)), max_size=3),
    copies=st.dictionaries(_names, st.lists(_counts, max_size=3), max_size=3),
)


@given(_reports)
def test_a_report_comes_back_from_json(report: LetterReport) -> None:
    """With the same types, since the driver goes on with it as with its own."""
    again = LetterReport.from_json(report.to_json())
    assert again._replace(load=report.load) == report
    assert all(np.array_equal(*columns) for columns in zip(again.load, report.load, strict=True))
    named = (
        *again.files,
        *again.dead_letters,
        *again.late,
        *again.sample,
        *(part for parts in again.stacks.values() for part in parts),
    )
    assert {type(each) for each in named} <= {LetterFile, DeadLetter, MatchSample, Part}


def context(folder: Path, **stacks: tuple[Part, ...]) -> LetterContext:
    """With the stacks of shard 0 of some tables, and that of a table that is not divided."""
    others = {"bindings": tuple(Part(f"b{n}", 1) for n in range(100))}
    return LetterContext(
        MatchContext(folder, 1), stacks={f"{name}/0": parts for name, parts in stacks.items()} | others
    )


def sources(*names: str) -> pa.Table:
    rows = [{"node": "local", "source": name, "seen": "1"} for name in names]
    return pa.Table.from_pylist(rows, SOURCES.schema)


def test_long_stacks_need_a_job(tmp_path: Path) -> None:
    """Of a table that is divided: the driver merges all of the others."""
    parts = tuple(Part(f"p{n}", 1) for n in range(25))
    assert not context(tmp_path).needs_job
    assert not context(tmp_path, sources=parts[:24], receivers=parts[:24]).needs_job
    assert context(tmp_path, sources=parts[:1], receivers=parts).needs_job


def test_tasks_merge_what_the_driver_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if they add nothing; then no job is needed any more."""
    monkeypatch.setattr(module, "_LARGEST_HERE", 10)
    (tmp_path / "parts").mkdir()
    start = context(tmp_path)
    tables = start.open()
    for number in range(30):
        tables.add(SOURCES, sources(*(f"s{number}.{row}" for row in range(8))))
    left = start._replace(stacks=start.stacks | tables.stacks)
    assert left.needs_job
    divided, here = (SOURCES, RECEIVERS, LAST_SENT), left.open()
    with left.open_in_task(0, divided) as task:
        for each in (here, task):
            for table in divided:
                each.merge(table)
    assert here.stacks == {}
    (name,) = task.stacks
    assert name == "sources/0"
    assert not left._replace(stacks=left.stacks | task.stacks).needs_job
    folder = PartFolder(tmp_path / "parts")
    after, before = (folder.read_all(SOURCES, stacks[name]).sort_by("source") for stacks in (task.stacks, left.stacks))
    assert after.equals(before)


def test_what_is_added_is_visible_at_once(tmp_path: Path) -> None:
    """In the shard to which it belongs. The context stays as it was."""
    (tmp_path / "parts").mkdir()
    start = context(tmp_path)._replace(shards=3)
    names = [f"s{number}" for number in range(20)]
    tables = start.open()
    tables.add(SOURCES, sources(*names))
    keys = [pa.array(["local"] * 20), pa.array(names)]
    assert len(tables.lookup(SOURCES).find(SOURCES.keys, keys).key) == 20
    after = start._replace(stacks=start.stacks | tables.stacks)
    found = []
    for shard in range(3):
        with after.open_in_task(shard, [SOURCES]) as opened:
            found.append(len(opened.lookup(SOURCES).find(SOURCES.keys, keys).key))
    assert (sum(found), min(found) > 0) == (20, True)
    assert not len(start.open().lookup(SOURCES).find(SOURCES.keys, keys).key)


def attempt(
    stream: PureStream, records: Sequence[Record], first: int, fetcher: StateFetcher | None = None
) -> tuple[list[LetterReport], dict[str, list[pa.Table]]]:
    """The next batch. With a `fetcher`, as tasks on another host process it."""
    rows = placed(records, first=first)
    context = stream.state.prepare(control(rows), stream.state.manifest.batch + 1).letters
    matched = match_rows(context.match, rows)
    context = context._replace(match=context.match._replace(fetcher=fetcher))
    letters: dict[str, list[pa.Table]] = defaultdict(list)
    with context.open_in_task(0, [SOURCES]) as tables:
        addressed, by_source = address_events(matched, context, tables, ())
    with context.open_in_task(0, [LAST_SENT, RECEIVERS]) as tables:
        by_receiver = make_letters(addressed, context, tables, lambda office, table: letters[office].append(table))
    return [by_source, by_receiver], letters


def parts_of(reports: Sequence[LetterReport]) -> set[str]:
    return {part.name for report in reports for parts in report.stacks.values() for part in parts}


def test_other_hosts_make_the_same_letters(tmp_path: Path) -> None:
    """The driver has their parts. If files in a cache are damaged, another attempt fetches them again."""
    stream = PureStream(tmp_path / "state")
    stream.run(placed([subscription("s1", "ann"), subscription("s2", "bob"), event("cam", 1)]))
    events, parts = [event("cam", 1), event("cam", 2), event("car", 1)], tmp_path / "state" / "parts"
    before = {path.name for path in parts.iterdir()}
    expected = attempt(stream, events, 4)
    new = parts_of(expected[0]) - before
    for name in new:
        (parts / name).unlink()
    with serve_state(tmp_path / "state", "127.0.0.1", tmp_path / "cache") as fetcher:
        for name in before:
            (fetcher.folder / "parts").mkdir(parents=True, exist_ok=True)
            (fetcher.folder / "parts" / name).write_bytes(b"hole")
        for _ in range(2):
            with pytest.raises(UnavailableError, match="fetching files again after damage"):
                attempt(stream, events, 4, fetcher)
        reports, letters = attempt(stream, events, 4, fetcher)
    assert letters == expected[1]
    assert [report.to_json() for report in reports] == [report.to_json() for report in expected[0]]
    assert sum(table.num_rows for table in expected[1]["local"]) == 4
    assert new
    assert new <= {path.name for path in parts.iterdir()}


def test_a_task_writes_the_first_parts(tmp_path: Path) -> None:
    """There is nothing to fetch for it."""
    stream = PureStream(tmp_path / "state")
    with serve_state(tmp_path / "state", "127.0.0.1", tmp_path / "cache") as fetcher:
        reports, letters = attempt(stream, [event("cam", 1)], 1, fetcher)
    (name,) = parts_of(reports)
    assert (tmp_path / "state" / "parts" / name).exists()
    assert letters == {}
