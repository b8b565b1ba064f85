"""The letter context and what its steps report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.deliver.outbox import LetterFile
from roamcast.pipeline.letters import context as module
from roamcast.pipeline.letters.context import LetterContext, LetterReport
from roamcast.pipeline.schemas import LAST_SENT, RECEIVERS, SOURCES
from roamcast.pipeline.state.control import DeadLetter
from roamcast.pipeline.state.load import LoadRows
from roamcast.pipeline.state.parts import Part, PartFolder
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
    sample=st.lists(st.tuples(_names, _counts, st.lists(_counts, max_size=3)), max_size=3),
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
        *(part for parts in again.stacks.values() for part in parts),
    )
    assert {type(each) for each in named} <= {LetterFile, DeadLetter, Part}


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
    tables = start.open([0], here=True)
    for number in range(30):
        tables.add(SOURCES, sources(*(f"s{number}.{row}" for row in range(8))))
    left = start._replace(stacks=start.stacks | tables.stacks)
    assert left.needs_job
    here, task = left.open([0], here=True), left.open([0])
    for each in (here, task):
        for table in (SOURCES, RECEIVERS, LAST_SENT):
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
    tables = start.open(range(3), here=True)
    tables.add(SOURCES, sources(*names))
    keys = [pa.array(["local"] * 20), pa.array(names)]
    assert len(tables.lookup(SOURCES).find(SOURCES.keys, keys).key) == 20
    after = start._replace(stacks=start.stacks | tables.stacks)
    found = [len(after.open([shard]).lookup(SOURCES).find(SOURCES.keys, keys).key) for shard in range(3)]
    assert (sum(found), min(found) > 0) == (20, True)
    assert not len(start.open(range(3)).lookup(SOURCES).find(SOURCES.keys, keys).key)
