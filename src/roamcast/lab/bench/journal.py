"""`roamcast bench journal`: does a batch stay as fast after very many segments were written and deleted?

The pipeline's query reads a journal with one record per segment. Small batches are timed at the start and at the end;
in between the given number of segments is written, read and deleted.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from roamcast.durable import write_atomic
from roamcast.journal.reader import JournalFolder
from roamcast.journal.records import EVENT, Record, encode, to_batch
from roamcast.journal.writer import FileJournal

__all__ = ["bench_journal"]

_BATCHES = 40
_RECORDS = 10  # of a timed batch
_BACKLOG = 20_000  # maximum of segments in the folder
_NODE = "local"
_SAY_EVERY_S = 10.0

Say = Callable[[str], None]


def bench_journal(segments: int, say: Say) -> dict[str, float]:
    from roamcast.pipeline.query.identity import open_pipeline
    from roamcast.pipeline.query.session import LOCAL_CHECKPOINT, session
    from roamcast.pipeline.query.stream import PipelineLimits, PipelineQuery

    with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as folder:
        data = Path(folder)
        pipeline = open_pipeline(data)
        spark = session("roamcast-bench", options=LOCAL_CHECKPOINT, log=data / "spark.log")
        query = PipelineQuery(spark, pipeline, data, PipelineLimits(records=_BACKLOG)).start()
        feed = _JournalFeed(data / "journal")
        say("warming up")
        _timed_batches(feed, query)
        before = _timed_batches(feed, query)
        say(f"batch time at the start {before:.0f} ms; now writing {segments} segments")
        began = time.monotonic()
        feed.churn(segments, query, say)
        query.processAllAvailable()
        churned = time.monotonic() - began
        after = _timed_batches(feed, query)
        left = feed.file_count()
        query.stop()
        feed.close()
        pipeline.close()
        spark.stop()
    return {
        "segments": segments,
        "segments_per_s": round(segments / churned, 1),
        "files_left": left,
        "batch_ms_before": round(before, 1),
        "batch_ms_after": round(after, 1),
        "ratio": round(after / before, 3),
    }


class _JournalFeed:
    """Writes segments of one record."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._journal = FileJournal(root, _NODE, linger=0.0)
        self._folder = JournalFolder(root, _NODE)
        self._seq = 0

    def put(self, count: int) -> None:
        for _ in range(count):
            self._journal.append([self._event()]).result()

    def file_count(self) -> int:
        return sum(1 for _ in self._folder.path.iterdir())

    def churn(self, segments: int, query: Any, say: Say) -> None:
        """Write segments like the journal, but without sync: a million syncs would measure the disk."""
        self._journal.close()
        last_message, first = time.monotonic(), self._folder.last_offset() + 1
        for offset in range(first, first + segments):
            rows = to_batch(_NODE, offset, [self._event()])
            write_atomic(self._folder.path_of(offset, offset), encode([rows]), durable=False)
            if offset % 1_000 == 0:
                self._wait_for_room(query)
                if time.monotonic() - last_message > _SAY_EVERY_S:
                    last_message = time.monotonic()
                    say(f"{offset - first} of {segments} segments")
        self._journal = FileJournal(self._root, _NODE, linger=0.0)

    def close(self) -> None:
        self._journal.close()

    def _event(self) -> Record:
        self._seq += 1
        return Record(EVENT, "feed", self._seq, "feed", self._seq, 0.0, 0.0, ["bench"])

    def _wait_for_room(self, query: Any) -> None:
        while self.file_count() > _BACKLOG:
            if not query.isActive:
                raise query.exception()
            time.sleep(0.05)


def _timed_batches(feed: _JournalFeed, query: Any) -> float:
    """The median duration of a small batch, in milliseconds."""
    times: list[float] = []
    for _ in range(_BATCHES):
        feed.put(_RECORDS)
        query.processAllAvailable()
        times += [p["durationMs"]["triggerExecution"] for p in query.recentProgress[-2:] if p["numInputRows"]][-1:]
    return statistics.median(times)
