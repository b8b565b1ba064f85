"""`roamcast bench journal`: does a batch stay as quick as at first after very many segments have come and gone?

The pipeline's own stream reads journals that are written one record a segment. Small batches are timed at the beginning
and at the end; between them as many segments as asked for are written, read and deleted. The peer is the beginning.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from roamcast.journal.files import FileJournal
from roamcast.journal.records import EVENT, Record

__all__ = ["bench_journal"]

_BATCHES = 40
_RECORDS = 10  # a timed batch
_NODES = 8  # write at the same time during the churn
_PORTION = 250
_BACKLOG = 20_000  # segments that may lie in their folders during the churn
_SAY_EVERY_S = 10.0

Say = Callable[[str], None]


def bench_journal(segments: int, say: Say) -> dict[str, float]:
    from roamcast.pipeline.identity import open_pipeline
    from roamcast.pipeline.session import LOCAL_CHECKPOINT, session
    from roamcast.pipeline.stream import Limits, Stream

    with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as folder:
        data = Path(folder)
        pipeline = open_pipeline(data)
        spark = session("roamcast-bench", options=LOCAL_CHECKPOINT, log=data / "spark.log")
        query = Stream(spark, pipeline, data, Limits(records=_BACKLOG)).start()
        feed = _Feed(data / "journal")
        say("warming up")
        _timed_batches(feed, query)
        before = _timed_batches(feed, query)
        say(f"batch time at first {before:.0f} ms; now {segments} segments come and go")
        began = time.monotonic()
        feed.churn(segments, query, say)
        query.processAllAvailable()
        churned = time.monotonic() - began
        after = _timed_batches(feed, query)
        left = feed.lying()
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


class _Feed:
    """Writes one record a segment, at one node or at several at once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._journals = {f"node-{n}": FileJournal(root, f"node-{n}", linger=0.0) for n in range(_NODES)}
        self._seq = dict.fromkeys(self._journals, 0)

    def put(self, count: int, node: str = "node-0") -> None:
        for _ in range(count):
            self._seq[node] += 1
            event = Record(EVENT, "feed", self._seq[node], "feed", self._seq[node], 0.0, 0.0, ["bench"])
            self._journals[node].append([event]).result()

    def lying(self) -> int:
        return sum(1 for node in self._journals for _ in (self._root / node).iterdir())

    def churn(self, segments: int, query: Any, say: Say) -> None:
        left, said = segments, time.monotonic()
        with ThreadPoolExecutor(_NODES) as threads:
            while left > 0:
                list(threads.map(lambda node: self.put(_PORTION, node), self._journals))
                left -= _PORTION * _NODES
                while self.lying() > _BACKLOG:
                    if not query.isActive:
                        raise query.exception()
                    time.sleep(0.05)
                if time.monotonic() - said > _SAY_EVERY_S:
                    said = time.monotonic()
                    say(f"{segments - left} of {segments} segments")

    def close(self) -> None:
        for journal in self._journals.values():
            journal.close()


def _timed_batches(feed: _Feed, query: Any) -> float:
    """The median time of a small batch, in milliseconds."""
    times: list[float] = []
    for _ in range(_BATCHES):
        feed.put(_RECORDS)
        query.processAllAvailable()
        times += [p["durationMs"]["triggerExecution"] for p in query.recentProgress[-2:] if p["numInputRows"]][-1:]
    return statistics.median(times)
