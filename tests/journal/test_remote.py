"""Reading journals of another host: requests and answers, without a network."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from worlds import event, journal

from roamcast.errors import CorruptionError
from roamcast.journal.port import RecordReader
from roamcast.journal.reader import open_journal
from roamcast.journal.remote import JournalServer, RemoteJournal


class Requests:
    """Passes requests to a server. Like a client of a network, it can be pickled."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def __call__(self, request: str) -> bytes:
        content = JournalServer(self.data).answer(request)
        assert content is not None
        return content


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three segments of one node and one of another."""
    journal(tmp_path, *([event("cam", first + n) for n in range(3)] for first in (1, 4, 7)), node="a")
    journal(tmp_path, [event("car", 1)], node="b")
    return tmp_path


@pytest.mark.parametrize(("after", "through"), [(0, 9), (2, 7), (3, 6), (8, 9), (4, 4)])
def test_the_records_are_those_of_the_reader(data: Path, after: int, through: int) -> None:
    """For ranges within and across segments; tasks get a pickled copy."""
    remote: RecordReader = pickle.loads(pickle.dumps(RemoteJournal(Requests(data))))
    local = open_journal(data)
    for node, end in (("a", through), ("b", min(through, 1))):
        rows = [row for batch in remote.read(node, after, end) for row in batch.to_pylist()]
        assert rows == [row for batch in local.read(node, after, end) for row in batch.to_pylist()]


def test_missing_records_are_corruption(data: Path) -> None:
    """With the message and the hint of the host that has the journal."""
    with pytest.raises(CorruptionError, match=r"journal/a: offsets 9 to 12 are needed, 1 to 9 exist.*--new"):
        list(RemoteJournal(Requests(data)).read("a", 8, 12))


def test_a_damaged_segment_is_corruption(data: Path) -> None:
    """Found by the reader, whichever host damaged it."""

    def damage(request: str) -> bytes:
        content = bytearray(Requests(data)(request))
        if request.endswith(".parquet"):
            content[len(content) // 3] ^= 0xFF
        return bytes(content)

    with pytest.raises(CorruptionError, match=r"journal/a/.*damaged"):
        pa.Table.from_batches(list(RemoteJournal(damage).read("a", 0, 9)))


@pytest.mark.parametrize(
    "request_",
    [
        "", "a", "a/", "a/1", "a/1-2-3", "../journal/a/1-2", "a/../b/1-1", "a.lock/1-2", "/etc/passwd", "a/segment.tmp",
        f"a/{1:020d}-{2:020d}.parquet", f"../a/{1:020d}-{3:020d}.parquet", f"a/../a/{1:020d}-{3:020d}.parquet",
    ],
)  # fmt: skip
def test_only_journals_are_served(data: Path, request_: str) -> None:
    """And only what exists."""
    (data / "journal" / "a" / "segment.tmp").write_bytes(b"half")
    assert JournalServer(data).answer(request_) is None
