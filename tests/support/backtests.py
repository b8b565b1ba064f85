"""Live worlds for tests of backtests: nodes with control writers and journals, and the batches of the pipeline."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
from batches import Placed, PureStream
from binding import places
from control_writers import SECONDS, Mailboxes

from roamcast.archive.compaction import Compaction, CompactionLimits
from roamcast.archive.reader import Archive, open_archive
from roamcast.archive.writer import ArchiveWriter
from roamcast.backtest.evaluate import Backtest, backtest
from roamcast.backtest.request import Request, Subscriber
from roamcast.journal.reader import JournalFolder
from roamcast.journal.records import EVENT, TRACKING, Record, read, to_records
from roamcast.journal.writer import FileJournal
from roamcast.lab.models.registry import MemoryRegistry
from roamcast.model import Position
from roamcast.node.clock import Clock
from roamcast.node.control.queries import Queries
from roamcast.node.control.tracking import Tracker
from roamcast.node.control.writer import ControlWriter
from roamcast.node.metrics import Metrics
from roamcast.settings_model import NodeLimits
from roamcast.space import PLANAR
from roamcast.storage.location import open_storage
from roamcast.store.registry.values import Entity, EntityKind

START: Final = 1_700_000_000_000_000
STEP: Final = 1_000_000  # the clocks advance by a second with every reading
ROOMS: Final = places(stage=(0, 0, 10, 10))


class LiveNode:
    """A control writer that tracks its entities, on a registry in memory and a real journal."""

    def __init__(self, folder: Path, name: str, wall: Iterator[int]) -> None:
        self.name = name
        self.folder = JournalFolder(folder, name)
        self.journal = FileJournal(folder, name, linger=0.0)
        self.registry = MemoryRegistry()
        self.clock = Clock(wall=lambda: next(wall))
        self.queries = Queries(ROOMS, PLANAR, NodeLimits())
        self.control = ControlWriter(
            self.registry, Mailboxes(), self.journal, self.queries, self.clock, Metrics(lambda: {}), domain=name,
            history=3600.0, max_peer_sources=1_000, tracker=Tracker(self.journal, is_on=True),
        )  # fmt: skip

    def register(self, id: str, kind: EntityKind, at: tuple[float, float] | None = None, **attributes: Any) -> None:
        position = None if at is None else Position(id, *at, self.clock.now())
        self.control.register(Entity(id, kind, f"hash of {id}", attributes, position)).result(SECONDS)

    def change(self, id: str, **attributes: Any) -> None:
        self.control.set_attributes(id, attributes).result(SECONDS)

    def move(self, **positions: tuple[float, float]) -> None:
        now = self.clock.now()
        self.control.move([Position(id, *at, now) for id, at in positions.items()]).result(SECONDS)

    def subscribe(self, id: str, subscriber: str, text: str) -> int:
        """Returns when it was accepted."""
        self.control.subscribe(id, subscriber, self.queries.accept(text)).result(SECONDS)
        subscription = self.registry.subscription(id)
        assert subscription is not None
        return subscription.accepted

    def close(self) -> None:
        self.control.close()
        self.journal.close()


class LiveWorld:
    """Nodes of one data folder and a pipeline without Spark that archives. Each method is a step; steps are written at
    distinct times.
    """

    def __init__(self, folder: Path, names: Sequence[str] = ("local",)) -> None:
        self.wall = itertools.count(START, STEP)
        self.nodes = {name: LiveNode(folder / "journal", name, self.wall) for name in names}
        self.stream = PureStream(folder / "state")
        self.letters: list[dict[str, Any]] = []
        self._written: dict[str, list[int]] = {name: [] for name in names}  # by offset
        self._read = dict.fromkeys(names, 0)
        self.folder = folder
        self._archive = ArchiveWriter(open_storage(str(folder)), "pure", -1)
        self._seen: set[tuple[str, int]] = set()
        self.seqs: dict[str, int] = {}  # the last one of each source
        self._batch = 0

    @property
    def node(self) -> LiveNode:
        """The first one."""
        return next(iter(self.nodes.values()))

    def now(self) -> int:
        """The present, after everything that has been written."""
        now = next(self.wall)
        for name, node in self.nodes.items():
            written = self._written[name]
            written += [now] * (node.journal.last_offset - len(written))
        return next(self.wall)

    def publish(
        self,
        source: str,
        at: tuple[float, float] = (0, 0),
        terms: Sequence[str] = (),
        level: float | None = None,
        *,
        ago: int = 0,
        via: str | None = None,
        again: bool = False,
        attributes: dict[str, Any] | None = None,
    ) -> None:
        """An event of `source` (`id@home`), which happened `ago` seconds before; `again`: another copy of its last."""
        id, _, home = source.partition("@")
        home = home or next(iter(self.nodes))
        seq = self.seqs.get(source, 0) + (not again)
        self.seqs[source] = max(seq, 1)
        node = self.nodes[via or home]
        name = id if node.name == home else f"{id}@{home}"
        readings = {} if level is None else {"level": level}
        body = orjson.dumps(attributes).decode() if attributes else None
        time = node.clock.now() - ago * STEP
        record = Record(EVENT, name, max(seq, 1), f"{source}:{seq}", time, *map(float, at), terms, readings, body)
        node.journal.append([record]).result(SECONDS)
        self.now()

    def batch(self) -> None:
        """Let the pipeline process what the nodes have journalled, and archive it."""
        self.now()
        rows: list[Placed] = []
        archived: list[pa.RecordBatch] = []
        written: dict[str, list[tuple[int, int]]] = {}
        dropped: dict[str, list[int]] = {name: [] for name in self.nodes}
        first_offsets = {name: read + 1 for name, read in self._read.items()}
        for name, node in sorted(self.nodes.items()):
            last = node.journal.last_offset
            for records in read(node.folder.segments(), self._read[name], last):
                offsets = records["offset"].to_pylist()
                decoded = to_records(records.drop_columns(["node", "offset"]))
                rows += map(Placed, [name] * len(offsets), offsets, decoded)
                archived.append(records)
                dropped[name] += self._copies(name, offsets, decoded)
            if last >= first_offsets[name]:
                times = self._written[name]
                written[name] = [(offset, times[offset - 1]) for offset in range(first_offsets[name], last + 1)]
            self._read[name] = last
        ran = self.stream.run([row for row in rows if row.record.kind not in TRACKING])
        for table in ran.letters.values():
            for row in table.to_pylist():
                self.letters.append({"number": row["number"], **orjson.loads(row["body"])})
        self._archive.add(self._batch, archived, written, first_offsets, dict(self._read), dropped)
        self._batch += 1

    def _copies(self, node: str, offsets: Sequence[int], records: Sequence[Record]) -> list[int]:
        """The offsets of events that have come before."""
        copies = []
        for offset, record in zip(offsets, records, strict=True):
            key = record.entity if "@" in str(record.entity) else f"{record.entity}@{node}", record.seq
            if record.kind == EVENT and key in self._seen:
                copies.append(offset)
            elif record.kind == EVENT:
                self._seen.add(key)
        return copies

    def compact(self) -> None:
        """Divide the archive into small files by day and cell."""
        limits = CompactionLimits(recent=1, rows=40, cell=4, grace=0.0)
        now = next(self.wall) * 1_000
        Compaction(open_storage(str(self.folder)), limits, now=lambda: now).run("pure", self._batch - 1)

    def archive(self) -> Archive:
        return open_archive(self.folder)

    def backtest(
        self, text: str, begin: int, end: int, subscriber: Subscriber, accepted: int | None = None
    ) -> Backtest:
        return self.run(Request(text, begin, end, subscriber, "q", accepted))

    def run(self, request: Request) -> Backtest:
        return backtest(self.archive(), request)


def letters_of(result: Backtest) -> list[dict[str, Any]]:
    return [{"number": row["number"], **orjson.loads(row["body"])} for row in result.letters.to_pylist()]


@contextmanager
def live_world(folder: Path, names: Sequence[str] = ("local",)) -> Iterator[LiveWorld]:
    with ExitStack() as opened:
        world = LiveWorld(folder, names)
        for node in world.nodes.values():
            opened.callback(node.close)
        yield world
