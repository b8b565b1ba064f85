"""Files of the state, fetched by executors of other hosts."""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
from pure import PureStream, batches_of, control, placed
from worlds import NOON, around, event, journal, position, subscription

from roamcast.errors import CorruptionError, StorageError, UnavailableError
from roamcast.journal.bodies import BindingBody
from roamcast.journal.records import BINDING, Record
from roamcast.pipeline.state.state_server import CACHE, Supplier, supplying
from roamcast.pipeline.tasks.match import sift


@pytest.fixture
def supplier(tmp_path: Path) -> Iterator[Supplier]:
    for name in ("parts", "segments"):
        (tmp_path / "state" / name).mkdir(parents=True)
    with supplying(tmp_path / "state", "127.0.0.1", tmp_path / "cache") as supplier:
        yield supplier


def put(supplier: Supplier, content: bytes, kind: str = "segments", suffix: str = "segment") -> str:
    """A file of the state on the driver's side."""
    name = f"{kind}/{hashlib.sha256(content).hexdigest()}.{suffix}"
    (supplier.cache.parent / "state" / name).write_bytes(content)
    return name


def test_what_is_missing_is_fetched_once(supplier: Supplier) -> None:
    """The second time the driver need not have it."""
    content = os.urandom(3_000_000)
    files = [put(supplier, content), put(supplier, b"rows", "parts", "arrow")]
    assert [(supplier.at_hand(files) / file).read_bytes() for file in files] == [content, b"rows"]
    for file in files:
        (supplier.cache.parent / "state" / file).unlink()
    assert supplier.at_hand(files) == supplier.cache
    assert sorted(p.name for p in supplier.cache.glob("*/*")) == sorted(Path(f).name for f in files)


def test_many_may_fetch_the_same_file_at_once(supplier: Supplier) -> None:
    """Whoever is last replaces it by the same."""
    content = os.urandom(2_000_000)
    file = put(supplier, content)
    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(lambda _: supplier.at_hand([file]), range(8)))) == 8
    assert (supplier.cache / file).read_bytes() == content


def test_a_damaged_file_is_refused_and_not_kept(supplier: Supplier) -> None:
    """Neither are files that the driver does not have."""
    file = put(supplier, b"whole")
    (supplier.cache.parent / "state" / file).write_bytes(b"hole")
    with pytest.raises(CorruptionError, match="damaged"):
        supplier.at_hand([file])
    with pytest.raises(CorruptionError, match="missing"):
        supplier.at_hand([f"parts/{'0' * 64}.arrow"])
    assert not list(supplier.cache.glob("*/*"))


def test_what_was_dropped_is_fetched_again(supplier: Supplier) -> None:
    """As for a file that was damaged in the cache."""
    file = put(supplier, b"whole")
    (supplier.at_hand([file]) / file).write_bytes(b"hole")
    supplier.drop([file])
    assert (supplier.at_hand([file]) / file).read_bytes() == b"whole"


def test_what_was_not_used_for_long_leaves_the_cache(supplier: Supplier) -> None:
    """When something is fetched; what was asked for lately stays."""
    old, used, new = (put(supplier, content) for content in (b"old", b"used", b"new"))
    supplier.at_hand([old, used])
    for file in (old, used):
        os.utime(supplier.cache / file, (0, 0))
    supplier.at_hand([used, new])
    assert sorted(p.name for p in supplier.cache.glob("*/*")) == sorted(Path(f).name for f in (used, new))


def test_what_a_killed_task_had_of_the_journal_leaves_the_cache(supplier: Supplier) -> None:
    """Its folder, too, when that has been empty for long; one that is being read from stays."""
    for name in ("journal-old", "journal-new"):
        (supplier.cache / name).mkdir(parents=True)
    left = supplier.cache / "journal-old" / "segment.parquet"
    left.touch()
    for content in (b"first", b"second"):
        for path in (left, left.parent):
            if path.exists():
                os.utime(path, (0, 0))
        supplier.at_hand([put(supplier, content)])
        assert not left.exists()
    assert [path.name for path in supplier.cache.glob("journal-*")] == ["journal-new"]


def test_only_files_of_the_state_and_only_with_the_key(supplier: Supplier, tmp_path: Path) -> None:
    """Whatever else lies on the driver's disk is nobody's business."""
    file = put(supplier, b"rows", "parts", "arrow")
    (tmp_path / "state" / "0.json").write_bytes(b"{}")
    bearer = {"Authorization": f"Bearer {supplier.key}"}
    asked = [(f"/{file}", bearer), (f"/{file}", {}), ("/0.json", bearer), ("/parts/../0.json", bearer), ("/", bearer)]
    connection = HTTPConnection(supplier.host, supplier.port, timeout=10)
    found = []
    for path, headers in asked:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        found.append(answer.status)
    connection.close()
    assert found == [200, 403, 404, 404, 404]
    with pytest.raises(UnavailableError, match="refuses"):
        supplier._replace(key="guess").at_hand([file])


def test_a_driver_that_is_gone_is_named(tmp_path: Path) -> None:
    """With a hint, at once."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
    with pytest.raises(UnavailableError, match="gives no file") as told:
        Supplier("127.0.0.1", port, "key", tmp_path).at_hand([f"parts/{'0' * 64}.arrow"])
    assert "--host" in told.value.hint


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Supplier]:
    """A driver whose answers all break off in the middle."""

    class Hasty(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"{" * 50)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hasty) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever, 0.01)
        yield Supplier("127.0.0.1", server.server_port, "key", tmp_path)
        server.shutdown()


def test_an_answer_that_breaks_off_is_no_damage(hasty: Supplier) -> None:
    """Neither of a file nor of the journal: whoever asks again may get it."""
    with pytest.raises(UnavailableError, match="gives no file"):
        hasty.at_hand([f"parts/{'0' * 64}.arrow"])
    with pytest.raises(UnavailableError, match="gives no file"):
        list(hasty.journal("local", 0, 1))
    assert not list(hasty.cache.glob("*/*"))


def test_an_executor_that_dies_while_it_fetches_is_no_error(
    supplier: Supplier, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The driver says nothing, and goes on giving."""
    large, small = put(supplier, bytes(50_000_000)), put(supplier, b"rows")
    others = set(threading.enumerate())
    with socket.create_connection((supplier.host, supplier.port)) as connection:
        connection.sendall(f"GET /{large} HTTP/1.1\r\nAuthorization: Bearer {supplier.key}\r\n\r\n".encode())
        assert connection.recv(8) == b"HTTP/1.1"
        answering = set(threading.enumerate()) - others
        assert answering
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # as if killed
    for thread in answering:
        thread.join(30)
    assert not any(thread.is_alive() for thread in answering)
    assert (capfd.readouterr().err, caplog.text) == ("", "")
    assert (supplier.at_hand([small]) / small).read_bytes() == b"rows"


def test_a_disk_without_room_is_named(supplier: Supplier) -> None:
    """The cache's disk, not the driver's."""
    file = put(supplier, b"rows", "parts", "arrow")
    with pytest.raises(StorageError):
        supplier._replace(cache=Path("/dev/null/cache")).at_hand([file])


def test_an_address_of_another_machine_is_refused(tmp_path: Path) -> None:
    """192.0.2.0/24 is nobody's."""
    with pytest.raises(UnavailableError, match="cannot listen"), supplying(tmp_path, "192.0.2.1", tmp_path):
        pass


@pytest.mark.parametrize("is_damaged", [False, True])
def test_events_meet_the_same_state_by_way_of_a_cache(tmp_path: Path, is_damaged: bool) -> None:
    """Index, subscriptions, bindings and moving regions; also where files were damaged in the cache."""
    stream = PureStream(tmp_path / "state")
    bound = Record(BINDING, "cam", id="s3", time=NOON - 1, body=BindingBody("cat").to_json())
    made = [subscription("s1", "ann"), around("s2", "bob", 50.0), position("bob", 0.5), bound]
    stream.run(placed(made))
    events = placed([event("cam", n, x=n / 4) for n in range(1, 6)], first=len(made) + 1)
    sieve = stream.books.open(control(events), 1).sieve
    with supplying(tmp_path / "state", "127.0.0.1", tmp_path / "cache") as supplier:
        files = list(sieve.files)
        assert {Path(file).parent.name for file in files} == {"parts", "segments"}
        if is_damaged:
            for file in files:
                (supplier.at_hand(files) / file).write_bytes(b"hole")
        elsewhere = sieve._replace(folder=tmp_path / "nowhere", supplier=supplier)
        found, expected = (list(sift(one)(batches_of(events))) for one in (elsewhere, sieve))
    assert found == expected
    told = pa.Table.from_batches(found)
    assert [len(rows) for rows in told["subscriptions"].to_pylist()] == [2, 2, 2, 2, 1]
    assert [len(rows) for rows in told["bindings"].to_pylist()] == [1] * 5


@pytest.fixture
def with_journal(tmp_path: Path) -> Iterator[Supplier]:
    journal(tmp_path, [event("cam", n) for n in range(1, 6)], [event("cam", n) for n in range(6, 9)])
    with supplying(tmp_path / "state", "127.0.0.1", tmp_path / "cache", tmp_path / "journal") as supplier:
        yield supplier


def test_an_offset_range_of_the_journal_is_fetched_and_not_kept(with_journal: Supplier) -> None:
    """From the middle of one segment to the middle of the next."""
    rows = pa.Table.from_batches(list(with_journal.journal("local", 3, 7)))
    assert rows["offset"].to_pylist() == [4, 5, 6, 7]
    assert not list(with_journal.cache.iterdir())


def test_an_offset_range_that_is_not_there_is_named(with_journal: Supplier) -> None:
    """As if it were read on the driver."""
    with pytest.raises(CorruptionError, match="offsets 8 to 9 are needed"):
        list(with_journal.journal("local", 7, 9))


def test_a_worker_may_have_a_cache_of_its_own(
    supplier: Supplier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its environment."""
    file = put(supplier, b"rows", "parts", "arrow")
    monkeypatch.setenv(CACHE, str(tmp_path / "own"))
    assert supplier.at_hand([file]) == tmp_path / "own"
    assert (tmp_path / "own" / file).read_bytes() == b"rows"
    assert not supplier.cache.exists()
