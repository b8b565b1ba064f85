"""The stream of a backtest: one batch of the pipeline's own code, with records in the order of `order`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from roamcast.backtest.order import RankedRecord
from roamcast.deliver.outbox import LETTERS_SCHEMA
from roamcast.errors import CorruptionError
from roamcast.journal.records import FORWARDED, RECORD_SCHEMA, at_offsets, to_rows
from roamcast.pipeline.letters.here import make_letters_here
from roamcast.pipeline.query.batch_state import BatchSettings, BatchState, PreparedBatch
from roamcast.pipeline.schemas import MATCHED_SCHEMA
from roamcast.pipeline.state.control import ControlRecords, Row
from roamcast.pipeline.state.lookups import Integers
from roamcast.pipeline.state.manifests import StateFolder
from roamcast.pipeline.tasks.match import match_records

__all__ = ["Stream", "open_stream"]


class Stream:
    """A batch of which all control records are known; its events may be matched in any order."""

    def __init__(self, folder: Path, node: str, records: Sequence[RankedRecord]) -> None:
        self.node = node
        states = StateFolder(folder)
        states.create("backtest", {})
        manifest = states.newest()
        assert manifest is not None  # noqa: S101 - it has just been created
        state = BatchState(states, manifest, BatchSettings())
        rows = at_offsets(node, 1, to_rows([each.record for each in records]))
        ranks = pa.array([each.rank for each in records], pa.int64())
        rows = rows.set_column(1, RECORD_SCHEMA.field("offset"), ranks)
        control = ControlRecords(pa.Table.from_batches([rows], RECORD_SCHEMA), 0)
        self._prepared: PreparedBatch = state.prepare(control, 0)
        if self._prepared.changes.dead_letters:
            letter = self._prepared.changes.dead_letters[0]
            raise CorruptionError(f"a control record of the backtest is refused: {letter.reason}")

    def match(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A row of MATCHED_SCHEMA for each event (rows of RECORD_SCHEMA, with ranks as offsets)."""
        return match_records(self._prepared.context)(iter(batches))

    def binding_ends(self, rows: Integers) -> pa.ChunkedArray:
        """When these bindings ended (rows of matches); null for live ones."""
        return self._prepared.context.open_bindings().take(rows, ("end",))["end"]

    @property
    def initial(self) -> Sequence[Row]:
        """The bindings that also bring the last event of their source (rows of BINDINGS)."""
        return self._prepared.letters.initial

    def letters(self, matched: pa.Table) -> pa.Table:
        """The letters of all these events (MATCHED_SCHEMA, with distinct ranks as offsets), in the order of their
        numbers. Not one of the events is a copy of another one.
        """
        # The numbers of forwarded events are not looked at: what is left out here would be gaps in them.
        kind = MATCHED_SCHEMA.get_field_index("kind")
        matched = matched.set_column(kind, "kind", pa.array([FORWARDED] * matched.num_rows, pa.string()))
        tables = [LETTERS_SCHEMA.empty_table()]
        make_letters_here(matched, self._prepared.letters, lambda _, table: tables.append(table.cast(LETTERS_SCHEMA)))
        return pa.concat_tables(tables).combine_chunks()


@contextmanager
def open_stream(node: str, records: Sequence[RankedRecord]) -> Iterator[Stream]:
    """A stream with these control records of a node, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="roamcast-backtest-") as folder:
        yield Stream(Path(folder), node, records)
