"""The embedded journal when processes die and disks refuse."""

from __future__ import annotations

import errno
import os
import random
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from roamcast.errors import ConflictError, StorageError
from roamcast.journal.reader import JournalFolder
from roamcast.journal.records import Record, read
from roamcast.journal.writer import FileJournal

LIMIT = 30.0

# Appends without end, some twenty calls under way at any time; prints the first offset, the number of records and
# the name of each append that was acknowledged.
APPENDER = """
import sys
from collections import deque
from itertools import count
from pathlib import Path
from roamcast.journal.writer import FileJournal
from roamcast.journal.records import Record

journal = FileJournal(Path(sys.argv[1]), "n", linger=0.001)
under_way = deque()
for number in count():
    name = f"{sys.argv[2]}-{number}"
    size = number % 3 + 1
    under_way.append((journal.append([Record("event", entity=name)] * size), size, name))
    if len(under_way) > 20:
        future, size, name = under_way.popleft()
        print(future.result(), size, name, flush=True)
"""

HOLDER = """
import sys
from pathlib import Path
from roamcast.journal.writer import FileJournal

journal = FileJournal(Path(sys.argv[1]), "n")
print("open", flush=True)
sys.stdin.read()
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def entities(folder: JournalFolder) -> list[str]:
    """The entity of every record in the journal, in order; checks that offsets are dense from 1."""
    batches = list(read(folder.segments(), 0, folder.last_offset()))
    found = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert found == list(range(1, folder.last_offset() + 1))
    return [entity for batch in batches for entity in batch.column("entity").to_pylist()]


def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(tmp_path: Path) -> None:
    """After each of several SIGKILLs the journal is whole, dense, and has all that was acknowledged in its place."""
    chance = random.Random(2)
    acknowledged: dict[int, str] = {}
    for life in range(6):
        with start(APPENDER, str(tmp_path), str(life)) as child:
            assert child.stdout is not None
            lines = [child.stdout.readline() for _ in range(chance.randint(1, 300))]
            assert lines[-1].endswith("\n"), "the writer died by itself"
            child.send_signal(signal.SIGKILL)
            lines += child.stdout.readlines()
        for line in lines:
            if line.endswith("\n"):  # the last one may be torn
                first, size, name = line.split()
                acknowledged.update(dict.fromkeys(range(int(first), int(first) + int(size)), name))
        found = entities(JournalFolder(tmp_path, "n"))
        assert {offset: found[offset - 1] for offset in acknowledged} == acknowledged
    FileJournal(tmp_path, "n").close()
    assert list((tmp_path / "n").glob("*.tmp")) == []


def test_a_second_process_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    """The lock lives and dies with its process, even one that is killed."""
    with start(HOLDER, str(tmp_path)) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(ConflictError) as caught:
            FileJournal(tmp_path, "n")
        holder.send_signal(signal.SIGKILL)
        holder.wait(LIMIT)
    assert caught.value.hint
    FileJournal(tmp_path, "n").close()


Mount = Callable[..., None]


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Puts a small file system of its own at a folder; takes them all away at the end."""
    mounted: list[Path] = []

    def mount_at(folder: Path, options: str) -> None:
        folder.mkdir(exist_ok=True)
        try:
            done = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True
            )
        except FileNotFoundError:
            pytest.skip("there is no mount command here")
        if done.returncode:
            pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
        mounted.append(folder)

    yield mount_at
    for folder in reversed(mounted):
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_refuses_and_recovers(tmp_path: Path, mount: Mount) -> None:
    """What did not fit is not in the journal; once there is room, writing goes on without a hole."""
    mount(tmp_path, "size=1m")
    filler = tmp_path / "filler"
    filler.write_bytes(b"x" * 800_000)
    journal = FileJournal(tmp_path, "n", linger=0)
    assert journal.append([Record("event", entity="small")]).result(LIMIT) == 1
    big = Record("event", entity="big", body=random.Random(1).randbytes(300_000).hex())
    with pytest.raises(StorageError, match="full") as caught:
        journal.append([big, big]).result(LIMIT)
    assert caught.value.hint
    assert entities(JournalFolder(tmp_path, "n")) == ["small"]
    filler.unlink()
    assert journal.append([big]).result(LIMIT) == 2
    journal.close()
    assert entities(JournalFolder(tmp_path, "n")) == ["small", "big"]
    assert list((tmp_path / "n").glob("*.tmp")) == []


def test_a_read_only_disk_is_said_at_start(tmp_path: Path, mount: Mount) -> None:
    """A journal that cannot be written is not opened."""
    mount(tmp_path, "ro")
    with pytest.raises(StorageError, match="read-only") as caught:
        FileJournal(tmp_path / "journal", "n")
    assert caught.value.hint


def test_a_disk_that_turns_read_only_refuses(tmp_path: Path, mount: Mount) -> None:
    """The append fails with a hint, and so does the next one."""
    with closing(FileJournal(tmp_path, "n", linger=0)) as journal:
        mount(tmp_path / "n", "ro")
        for _ in range(2):
            with pytest.raises(StorageError, match="read-only") as caught:
                journal.append([Record("event")]).result(LIMIT)
            assert caught.value.hint


def refuse_sync(monkeypatch: pytest.MonkeyPatch, what: Callable[[int], bool], error: int, times: int = 1) -> None:
    """Make syncing of files (stat.S_ISREG) or folders (stat.S_ISDIR) fail that often."""
    fsync = os.fsync
    left = [error] * times

    def failing(descriptor: int) -> None:
        if left and what(os.fstat(descriptor).st_mode):
            raise OSError(left.pop(), "refused")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_records_that_could_not_be_synced_are_not_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """Their offsets go to the next append."""
    journal = FileJournal(tmp_path, "n", linger=0)
    refuse_sync(monkeypatch, stat.S_ISREG, error)
    with pytest.raises(StorageError):
        journal.append([Record("event", entity="lost")] * 2).result(LIMIT)
    assert journal.append([Record("event", entity="kept")]).result(LIMIT) == 1
    journal.close()
    assert entities(JournalFolder(tmp_path, "n")) == ["kept"]


def test_all_appends_of_a_refused_group_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them raises."""
    journal = FileJournal(tmp_path, "n", linger=0.05)
    refuse_sync(monkeypatch, stat.S_ISREG, errno.ENOSPC, times=10)
    futures = [journal.append([Record("event")]) for _ in range(10)]
    assert [type(future.exception(LIMIT)) for future in futures] == [StorageError] * 10
    journal.close()


def test_a_segment_in_doubt_stays_and_ends_all_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader may have counted on it: its offsets never go to other records, and nothing is acknowledged."""
    journal = FileJournal(tmp_path, "n", linger=0)
    refuse_sync(monkeypatch, stat.S_ISDIR, errno.EIO)
    for _ in range(2):
        with pytest.raises(StorageError, match="unknown") as caught:
            journal.append([Record("event", entity="doubt")]).result(LIMIT)
        assert "restart" in (caught.value.hint or "")
    journal.close()
    again = FileJournal(tmp_path, "n", linger=0)
    assert again.append([Record("event", entity="after")]).result(LIMIT) == 2
    again.close()
    assert entities(JournalFolder(tmp_path, "n")) == ["doubt", "after"]


def test_a_reader_does_not_count_on_what_it_cannot_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A offset that was shown can never come to mean another record, even if the machine crashes."""
    journal = FileJournal(tmp_path, "n", linger=0)
    journal.append([Record("event", entity="s")]).result(LIMIT)
    journal.close()
    folder = JournalFolder(tmp_path, "n")
    refuse_sync(monkeypatch, stat.S_ISDIR, errno.EIO)
    with pytest.raises(StorageError):
        folder.last_offset()
    assert folder.last_offset() == 1
