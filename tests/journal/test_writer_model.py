"""The file journal compared with a plain list, for random histories."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from roamcast.journal.reader import JournalFolder
from roamcast.journal.records import RECORD_SCHEMA, Record, read, to_batch, to_rows
from roamcast.journal.writer import FileJournal

LIMIT = 30.0


@dataclass(frozen=True)
class Append:
    """Calls made without waiting in between: the records, and whether they are appended as columns."""

    calls: list[tuple[list[Record], bool]]


@dataclass(frozen=True)
class Reopen:
    pass


@dataclass(frozen=True)
class Delete:
    """Delete up to this fraction of all offsets."""

    fraction: float


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
floats = st.floats(allow_nan=False)
rows = st.builds(
    Record,
    kind=texts,
    entity=st.none() | texts,
    seq=st.none() | st.integers(-(2**63), 2**63 - 1),
    id=st.none() | texts,
    time=st.none() | st.integers(-(2**63), 2**63 - 1),
    x=st.none() | floats,
    y=st.none() | floats,
    terms=st.none() | st.lists(texts, max_size=3),
    readings=st.none() | st.dictionaries(texts, floats, max_size=3),
    body=st.none() | texts,
)
calls = st.tuples(st.lists(rows, min_size=1, max_size=4), st.booleans())
appends = st.lists(calls, min_size=1, max_size=5).map(Append)
steps = st.lists(appends | st.just(Reopen()) | st.floats(0, 1).map(Delete), max_size=10)


@given(steps=steps)
def test_the_journal_equals_a_list(steps: list[Append | Reopen | Delete]) -> None:
    """Whatever is appended, deleted and reopened."""
    model: list[Record] = []
    deleted = 0
    with tempfile.TemporaryDirectory() as root:
        folder = JournalFolder(Path(root), "n")
        journal = FileJournal(Path(root), "n", linger=0)
        for step in steps:
            match step:
                case Append(calls):
                    futures = [journal.append(to_rows(call) if columns else call) for call, columns in calls]
                    for (call, _), future in zip(calls, futures, strict=True):
                        assert future.result(LIMIT) == len(model) + 1
                        model += call
                case Reopen():
                    journal.close()
                    journal = FileJournal(Path(root), "n", linger=0)
                case Delete(fraction):
                    deleted = max(deleted, int(fraction * len(model)))
                    folder.delete_before(deleted)
            assert folder.last_offset() == len(model)
            assert folder.first_offset() <= max(deleted, 1)
            segments = folder.segments_between(deleted, len(model))
            records = pa.Table.from_batches(read(segments, deleted, len(model)), RECORD_SCHEMA)
            assert records == pa.Table.from_batches([to_batch("n", deleted + 1, model[deleted:])])
        journal.close()
