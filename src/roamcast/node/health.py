"""The health of a node: what is wrong at the moment, and since when."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from roamcast.deliver.outbox import Outbox, PipelineStatus
from roamcast.durable import check_writable
from roamcast.errors import RoamcastError, StorageError
from roamcast.failures import Failure, FailureTracker, wall_time
from roamcast.journal.reader import FileJournalReader, JournalFolder, is_link_name
from roamcast.model import iso
from roamcast.settings_model import NodeSettings

__all__ = ["HealthMonitor", "Lag", "Problem", "ProblemKind", "WatchedJournal", "WatchedLinks", "WatchedStore"]

log = logging.getLogger(__name__)

_PERIOD: Final = 1.0  # seconds
_SECOND: Final = 1_000_000  # microseconds

ProblemKind = Literal[
    "no_pipeline", "pipeline_lag", "peer_down", "peer_stalled", "disk_low", "journal_refusing", "registry_refusing",
    "changes_waiting", "outbox_unread", "dead_letters", "events_lost", "archive",
]  # fmt: skip
"""Stable names; docs/operations.md describes them."""

_REFUSING: Final = frozenset({"journal_refusing", "registry_refusing"})


class Problem(NamedTuple):
    """Something that is wrong. `since` is its beginning as far as the node knows, in microseconds since 1970."""

    kind: ProblemKind
    since: int
    detail: str


class Lag(NamedTuple):
    """What is journalled and the pipeline has not read: how many records, and the age of the oldest."""

    records: int
    seconds: float


class WatchedStore(NamedTuple):
    """A store that the node writes to.

    `folder` is None if it is not in the data folder. `probe` finds out whether a store that has refused a write accepts
    writes again; then `failures` says so.
    """

    folder: Path | None
    failures: FailureTracker
    probe: Callable[[], object]


class WatchedJournal(Protocol):
    """The part of a journal that is watched."""

    @property
    def last_offset(self) -> int: ...

    def oldest_after(self, offset: int) -> tuple[int, int] | None:
        """The first existing record after an offset: its offset, and when it was written."""


class WatchedLinks:
    """The journals of a data folder that have the events of other data folders. Not thread-safe."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._reader = FileJournalReader(root)
        self._journals: dict[str, WatchedJournal] = {}

    def current(self) -> Mapping[str, WatchedJournal]:
        """Those that exist, by name."""
        for name in filter(is_link_name, self._reader.nodes()):
            self._journals.setdefault(name, _WatchedLink(JournalFolder(self._root, name)))
        return self._journals


class _WatchedLink:
    def __init__(self, folder: JournalFolder) -> None:
        self._folder = folder
        self.oldest_after = folder.oldest_after

    @property
    def last_offset(self) -> int:
        return self._folder.last_offset()


class HealthMonitor:
    """Observes the parts of a node. Thread-safe.

    A thread looks every second, so that the beginning of a problem is known when somebody asks. `problems` looks again,
    so the answer is current.
    """

    def __init__(
        self,
        settings: NodeSettings,
        outbox: Outbox,
        journals: Callable[[], Mapping[str, WatchedJournal]],
        *,
        journal_store: WatchedStore,
        registry_store: WatchedStore,
        control: FailureTracker,
        outbox_reader: FailureTracker,
        outbox_copier: FailureTracker | None = None,
        peers: Callable[[], dict[str, Failure]],
        stalled: Callable[[], dict[str, Failure]] = dict,
        losses: Callable[[], Sequence[Failure]] = tuple,
    ) -> None:
        """`journals` are the node's own and those of links, by name. `peers` returns the peers that do not respond,
        `stalled` those without a pipeline, `losses` what was lost on the way between data folders.
        """
        self._settings = settings
        self._outbox = outbox
        self._journals = journals
        self._stores: tuple[tuple[ProblemKind, WatchedStore, FailureTracker], ...] = (
            ("journal_refusing", journal_store, FailureTracker()),
            ("registry_refusing", registry_store, FailureTracker()),
        )
        self._control = control
        self._outbox_reader = outbox_reader
        self._outbox_copier = outbox_copier
        self._peers = peers
        self._stalled = stalled
        self._losses = losses
        self._started = wall_time()
        self._lock = threading.Lock()
        self._status: PipelineStatus | None = None
        self._heartbeat = 0
        self._status_seen: tuple[int, int] | None = None
        self._oldest_unread: dict[
            str, tuple[int, tuple[int, int]]
        ] = {}  # by journal, and the offset that was read last
        self._lagging = FailureTracker()
        self._disk = FailureTracker()
        self._unread_batches = FailureTracker()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"health-{settings.domain}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end_requests(self) -> None:
        """The node is stopping: it is not ready any more."""
        self._stop.set()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def problems(self) -> list[Problem]:
        """What is wrong now, oldest first. Looks at the disk."""
        with self._lock:
            self._read_status()
            now = wall_time()
            parts = (
                self._no_pipeline(now),
                self._pipeline_lag(now),
                self._peers_down(now),
                self._disk_low(),
                self._refusing(),
                self._outbox_unread(now),
                self._dead_letters(),
                self._archive(),
                [Problem("events_lost", *loss) for loss in self._losses()],
            )
            return sorted((problem for part in parts for problem in part), key=lambda problem: problem.since)

    def not_ready(self) -> list[Problem]:
        """The problems because of which the node cannot accept events and changes."""
        with self._lock:
            return [problem for problem in self._refusing() if problem.kind in _REFUSING]

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    def pipeline_status(self) -> PipelineStatus | None:
        """The newest status of the pipeline; None if there never was one."""
        with self._lock:
            self._read_status()
            return self._status

    def no_pipeline(self) -> str | None:
        """Why no event that is published here becomes a letter now; None while a pipeline reports."""
        with self._lock:
            self._read_status()
            return next((problem.detail for problem in self._no_pipeline(wall_time())), None)

    def heartbeat_age(self) -> float | None:
        """Seconds since the pipeline's last heartbeat; None if there never was one."""
        with self._lock:
            self._read_status()
            return None if self._status is None else (wall_time() - self._heartbeat) / _SECOND

    def lag(self) -> Lag:
        """What the pipeline has not read of this node's journal and of those of links."""
        with self._lock:
            self._read_status()
            return self._measure_lag(wall_time())[0]

    def _run(self) -> None:
        while not self._stop.wait(_PERIOD):
            with suppress(Exception):  # a store that cannot be probed is still refusing
                for _, store, _ in self._stores:
                    if store.failures.current is not None:
                        store.probe()
            try:
                self.problems()
            except Exception:  # the next look may succeed
                log.exception("cannot check the health of the node")

    def _read_status(self) -> None:
        """The outbox reader may be busy or have stopped, so this does not rely on it."""
        with suppress(OSError, RoamcastError):  # the outbox reader reports what it cannot read
            stat = self._outbox.status_path.stat()
            if (stat.st_mtime_ns, stat.st_ino) == self._status_seen:
                return
            status = self._outbox.read_status()
            self._status_seen = stat.st_mtime_ns, stat.st_ino
            if status is not None:
                self._status = status
                self._heartbeat = min(status.written_at, wall_time())  # a clock that is ahead hides nothing

    def _no_pipeline(self, now: int) -> Iterator[Problem]:
        status = self._status
        if status is None:
            yield Problem("no_pipeline", self._started, "no pipeline has reported to this node; is one running?")
        elif (silent := (now - self._heartbeat) / _SECOND) > self._settings.pipeline_silence:
            last = f", after batch {status.batch}" if status.batch >= 0 else ""
            detail = f"the pipeline has been silent for {silent:.0f} s{last}{_running(status)}"
            yield Problem("no_pipeline", self._heartbeat, detail)

    def _measure_lag(self, now: int) -> tuple[Lag, int]:
        """The lag, and when the oldest unread record was written."""
        records, oldest = 0, now
        with suppress(StorageError, OSError):
            for name, journal in self._journals().items():
                count, written_at = self._measure_journal(name, journal, now)
                records, oldest = records + count, min(oldest, written_at)
        return Lag(records, (now - oldest) / _SECOND), oldest

    def _measure_journal(self, name: str, journal: WatchedJournal, now: int) -> tuple[int, int]:
        """How many records of a journal are unread, and when the oldest of them was written."""
        read = 0 if self._status is None else self._status.read_offsets.get(name, 0)
        last = journal.last_offset
        if read >= last:
            return 0, now
        known = self._oldest_unread.get(name)
        if known is None or known[0] != read:
            oldest = None
            with suppress(StorageError, OSError):
                oldest = journal.oldest_after(read)
            if oldest is None:
                return last - read, now
            known = self._oldest_unread[name] = read, oldest
        offset, written_at = known[1]
        return last - offset + 1, written_at

    def _pipeline_lag(self, now: int) -> Iterator[Problem]:
        lag, written_at = self._measure_lag(now)
        if lag.seconds > self._settings.lag:
            running = "" if self._status is None else _running(self._status)
            detail = f"{lag.records} records wait for the pipeline, the oldest for {lag.seconds:.0f} s{running}"
            self._lagging.failed(detail, since=written_at)
        else:
            self._lagging.succeeded()
        yield from _problem("pipeline_lag", self._lagging.current)

    def _peers_down(self, now: int) -> Iterator[Problem]:
        for node, failure in sorted(self._peers().items()):
            if now - failure.since > self._settings.silence * _SECOND:
                yield Problem("peer_down", failure.since, f"{node} does not respond: {failure.detail}")
        for node, failure in sorted(self._stalled().items()):
            yield Problem("peer_stalled", failure.since, f"{node} forwards no events: {failure.detail}")

    def _disk_low(self) -> Iterable[Problem]:
        try:
            free, least = shutil.disk_usage(self._settings.data).free, self._settings.min_free
            if free < least:
                self._disk.failed(
                    f"{_megabytes(free)} are free on the disk of the data folder, less than {_megabytes(least)}"
                )
            else:
                self._disk.succeeded()
        except OSError as error:
            self._disk.failed(f"the free space is unknown: {error}")
        return _problem("disk_low", self._disk.current)

    def _refusing(self) -> list[Problem]:
        problems = []
        for kind, store, unwritable in self._stores:
            try:
                if store.folder is not None:
                    check_writable(store.folder)
                unwritable.succeeded()
            except StorageError as error:
                unwritable.failed(error)
            failures = [failure for failure in (store.failures.current, unwritable.current) if failure is not None]
            if failures:
                problems.append(Problem(kind, min(failure.since for failure in failures), failures[0].detail))
        if not problems:  # otherwise they are the reason
            problems += _problem("changes_waiting", self._control.current)
        return problems

    def _outbox_unread(self, now: int) -> Iterable[Problem]:
        for failures in (self._outbox_reader, self._outbox_copier):
            if failures is not None and failures.current is not None:
                return _problem("outbox_unread", failures.current)
        oldest = None
        with suppress(OSError, IndexError):
            batches = self._outbox.waiting(self._settings.domain)
            oldest = batches[0].stat().st_mtime_ns // 1_000
        if oldest is not None and now - oldest > self._settings.lag * _SECOND:
            self._unread_batches.failed(f"{len(batches)} batches of letters wait in the outbox", since=oldest)
        else:
            self._unread_batches.succeeded()
        return _problem("outbox_unread", self._unread_batches.current)

    def _dead_letters(self) -> Iterator[Problem]:
        status = self._status
        if status is not None and status.dead_letters:
            since = self._heartbeat if status.dead_letters_since is None else status.dead_letters_since
            detail = (
                f"{status.dead_letters} records could not be processed; see pipeline/dead_letters in the data folder"
            )
            yield Problem("dead_letters", since, detail)

    def _archive(self) -> Iterator[Problem]:
        status = self._status
        if status is None:
            return
        if status.archive is None:
            if self._settings.archive:
                detail = (
                    "this node journals for the archive, but the pipeline does not archive; start it with --archive"
                )
                yield Problem("archive", self._started, detail)
        elif status.archive["problem"] is not None:
            yield Problem("archive", status.archive["problem_since"], f"the archive: {status.archive['problem']}")
        elif not self._settings.archive:
            detail = "the pipeline archives, but the node journals no tracks for it: start the node with --archive"
            yield Problem("archive", self._started, detail)


def _problem(kind: ProblemKind, failure: Failure | None) -> list[Problem]:
    return [] if failure is None else [Problem(kind, *failure)]


def _running(status: PipelineStatus) -> str:
    if status.running_batch is None or status.running_since is None:
        return ""
    waiting = status.waiting_for_storage
    reason = f" and waits for storage: {waiting}" if waiting else ""
    return f"; batch {status.running_batch} has been running since {iso(status.running_since)}{reason}"


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:,.0f} MB"
