"""Tables of the state that tasks on other hosts open and write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from batches import PureStream, control, match_rows, placed
from worlds import event, subscription

from roamcast.errors import UnavailableError
from roamcast.journal.records import Record
from roamcast.pipeline.letters.by_receiver import make_letters
from roamcast.pipeline.letters.by_source import address_events
from roamcast.pipeline.letters.context import LetterReport
from roamcast.pipeline.schemas import LAST_SENT, RECEIVERS, SOURCES
from roamcast.pipeline.state.state_server import StateFetcher, serve_state


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
