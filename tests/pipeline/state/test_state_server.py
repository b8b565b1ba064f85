"""Executors on other hosts fetch the files of the state and the journal, and send new parts and letters."""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from batches import PureStream, arrow_batches, control, placed
from worlds import NOON, around, event, journal, position, subscription

from roamcast.errors import CorruptionError, StorageError, UnavailableError
from roamcast.journal.bodies import BindingBody
from roamcast.journal.records import BINDING, Record
from roamcast.journal.remote import JournalServer
from roamcast.lab.bench.processes import until
from roamcast.pipeline.state.state_server import CACHE, StateFetcher, serve_state
from roamcast.pipeline.tasks.match import match_records


@pytest.fixture
def fetcher(tmp_path: Path) -> Iterator[StateFetcher]:
    for name in ("parts", "segments"):
        (tmp_path / "state" / name).mkdir(parents=True)
    with serve_state(tmp_path / "state", "127.0.0.1", tmp_path / "cache") as fetcher:
        yield fetcher


def put(fetcher: StateFetcher, content: bytes, kind: str = "segments", suffix: str = "segment") -> str:
    """Write a file of the state on the driver."""
    name = f"{kind}/{hashlib.sha256(content).hexdigest()}.{suffix}"
    (fetcher.cache.parent / "state" / name).write_bytes(content)
    return name


def test_a_missing_file_is_fetched_once(fetcher: StateFetcher) -> None:
    """The second time nothing is fetched from the driver."""
    content = os.urandom(3_000_000)
    files = [put(fetcher, content), put(fetcher, b"rows", "parts", "arrow")]
    assert [(fetcher.fetch(files) / file).read_bytes() for file in files] == [content, b"rows"]
    for file in files:
        (fetcher.cache.parent / "state" / file).unlink()
    assert fetcher.fetch(files) == fetcher.cache
    assert sorted(p.name for p in fetcher.cache.glob("*/*")) == sorted(Path(f).name for f in files)


def test_several_processes_may_fetch_the_same_file(fetcher: StateFetcher) -> None:
    """The last one replaces the file with the same content."""
    content = os.urandom(2_000_000)
    file = put(fetcher, content)
    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(lambda _: fetcher.fetch([file]), range(8)))) == 8
    assert (fetcher.cache / file).read_bytes() == content


def test_a_damaged_file_is_refused_and_not_kept(fetcher: StateFetcher) -> None:
    """Nor is a file that the driver does not have."""
    file = put(fetcher, b"whole")
    (fetcher.cache.parent / "state" / file).write_bytes(b"hole")
    with pytest.raises(CorruptionError, match="damaged"):
        fetcher.fetch([file])
    with pytest.raises(CorruptionError, match="missing"):
        fetcher.fetch([f"parts/{'0' * 64}.arrow"])
    assert not list(fetcher.cache.glob("*/*"))


def test_a_discarded_file_is_fetched_again(fetcher: StateFetcher) -> None:
    """For example one that was damaged in the cache."""
    file = put(fetcher, b"whole")
    (fetcher.fetch([file]) / file).write_bytes(b"hole")
    fetcher.discard([file])
    assert (fetcher.fetch([file]) / file).read_bytes() == b"whole"


def test_unused_files_leave_the_cache(fetcher: StateFetcher) -> None:
    """When another file is fetched. Files that were used recently stay."""
    old, used, new = (put(fetcher, content) for content in (b"old", b"used", b"new"))
    fetcher.fetch([old, used])
    for file in (old, used):
        os.utime(fetcher.cache / file, (0, 0))
    fetcher.fetch([used, new])
    assert sorted(p.name for p in fetcher.cache.glob("*/*")) == sorted(Path(f).name for f in (used, new))


def test_only_files_of_the_state_are_served_and_only_with_the_key(fetcher: StateFetcher, tmp_path: Path) -> None:
    """Nothing else on the driver's disk can be read."""
    file = put(fetcher, b"rows", "parts", "arrow")
    (tmp_path / "state" / "0.json").write_bytes(b"{}")
    bearer = {"Authorization": f"Bearer {fetcher.key}"}
    requests = [
        (f"/{file}", bearer),
        (f"/{file}", {}),
        ("/0.json", bearer),
        ("/parts/../0.json", bearer),
        ("/", bearer),
    ]
    connection = HTTPConnection(fetcher.host, fetcher.port, timeout=10)
    statuses = []
    for path, headers in requests:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        response.read()
        statuses.append(response.status)
    connection.close()
    assert statuses == [200, 403, 404, 404, 404]
    with pytest.raises(UnavailableError, match="refused"):
        fetcher._replace(key="guess").fetch([file])


def test_a_driver_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    """At once, with a hint."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
    with pytest.raises(UnavailableError, match="cannot fetch") as caught:
        StateFetcher("127.0.0.1", port, "key", tmp_path).fetch([f"parts/{'0' * 64}.arrow"])
    assert "--host" in str(caught.value.hint)


@pytest.fixture
def truncating(tmp_path: Path) -> Iterator[StateFetcher]:
    """A driver that truncates all responses."""

    class Truncating(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"{" * 50)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Truncating) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever, 0.01)
        yield StateFetcher("127.0.0.1", server.server_port, "key", tmp_path)
        server.shutdown()


def test_a_truncated_response_is_not_corruption(truncating: StateFetcher) -> None:
    """Of a file or of the journal: a retry may succeed."""
    with pytest.raises(UnavailableError, match="cannot fetch"):
        truncating.fetch([f"parts/{'0' * 64}.arrow"])
    with pytest.raises(UnavailableError, match="cannot fetch"):
        list(truncating.journal().read("local", 0, 1))
    assert not list(truncating.cache.glob("*/*"))


def test_an_executor_that_dies_during_a_fetch_is_ignored(
    fetcher: StateFetcher, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The driver logs nothing and keeps serving."""
    large, small = put(fetcher, bytes(50_000_000)), put(fetcher, b"rows")
    others = set(threading.enumerate())
    with socket.create_connection((fetcher.host, fetcher.port)) as connection:
        connection.sendall(f"GET /{large} HTTP/1.1\r\nAuthorization: Bearer {fetcher.key}\r\n\r\n".encode())
        assert connection.recv(8) == b"HTTP/1.1"
        answering = set(threading.enumerate()) - others
        assert answering
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # as if killed
    for thread in answering:
        thread.join(30)
    assert not any(thread.is_alive() for thread in answering)
    assert (capfd.readouterr().err, caplog.text) == ("", "")
    assert (fetcher.fetch([small]) / small).read_bytes() == b"rows"


def test_an_unwritable_cache_is_a_storage_error(fetcher: StateFetcher) -> None:
    """It names the disk of the cache, not the driver's."""
    file = put(fetcher, b"rows", "parts", "arrow")
    with pytest.raises(StorageError):
        fetcher._replace(cache=Path("/dev/null/cache")).fetch([file])


def test_an_address_of_another_machine_is_refused(tmp_path: Path) -> None:
    """192.0.2.0/24 is reserved for documentation."""
    with pytest.raises(UnavailableError, match="cannot listen"), serve_state(tmp_path, "192.0.2.1", tmp_path):
        pass


@pytest.mark.parametrize("is_damaged", [False, True])
def test_matches_are_the_same_with_a_cache(tmp_path: Path, is_damaged: bool) -> None:
    """With index, subscriptions, bindings and moving regions; also if files in the cache are damaged."""
    stream = PureStream(tmp_path / "state")
    bound = Record(BINDING, "cam", id="s3", time=NOON - 1, body=BindingBody("cat").to_json())
    records = [subscription("s1", "ann"), around("s2", "bob", 50.0), position("bob", 0.5), bound]
    stream.run(placed(records))
    events = placed([event("cam", n, x=n / 4) for n in range(1, 6)], first=len(records) + 1)
    context = stream.state.prepare(control(events), 1).context
    with serve_state(tmp_path / "state", "127.0.0.1", tmp_path / "cache") as fetcher:
        files = list(context.files)
        assert {Path(file).parent.name for file in files} == {"parts", "segments"}
        if is_damaged:
            for file in files:
                (fetcher.fetch(files) / file).write_bytes(b"hole")
        elsewhere = context._replace(folder=tmp_path / "nowhere", fetcher=fetcher)
        matched, expected = (list(match_records(one)(arrow_batches(events))) for one in (elsewhere, context))
    assert matched == expected
    table = pa.Table.from_batches(matched)
    assert [len(rows) for rows in table["subscriptions"].to_pylist()] == [2, 2, 2, 2, 1]
    assert [len(rows) for rows in table["bindings"].to_pylist()] == [1] * 5


@pytest.fixture
def with_journal(tmp_path: Path) -> Iterator[StateFetcher]:
    journal(tmp_path, [event("cam", n) for n in range(1, 6)], [event("cam", n) for n in range(6, 9)])
    with serve_state(tmp_path / "state", "127.0.0.1", tmp_path / "cache", JournalServer(tmp_path)) as fetcher:
        yield fetcher


def test_a_range_of_the_journal_is_fetched_and_not_kept(with_journal: StateFetcher) -> None:
    """From the middle of one segment to the middle of the next."""
    rows = pa.Table.from_batches(list(with_journal.journal().read("local", 3, 7)))
    assert rows["offset"].to_pylist() == [4, 5, 6, 7]
    assert not with_journal.cache.exists()


def test_missing_records_are_reported(with_journal: StateFetcher) -> None:
    """As if they were read on the driver."""
    with pytest.raises(CorruptionError, match="offsets 8 to 9 are needed"):
        list(with_journal.journal().read("local", 7, 9))


def test_a_worker_may_have_a_cache_of_its_own(
    fetcher: StateFetcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set in its environment."""
    file = put(fetcher, b"rows", "parts", "arrow")
    monkeypatch.setenv(CACHE, str(tmp_path / "own"))
    assert fetcher.fetch([file]) == tmp_path / "own"
    assert (tmp_path / "own" / file).read_bytes() == b"rows"
    assert not fetcher.cache.exists()


LETTERS = f"{7:020d}-{'ab-' * 4}{'0' * 32}.parquet"
OFFICES = ["west", "west@north", "a@b+c", "a b", "100%25", "å", "x..y", "%2e%2e"]


class Driver(NamedTuple):
    """What executors may send files to: `folder` has `state` and `outbox`, and is the whole disk."""

    folder: Path
    fetcher: StateFetcher

    def files(self) -> dict[str, bytes]:
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in files}

    def request(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> int:
        """The status of a PUT that has the right key, checksum and size, unless `headers` say otherwise."""
        usual = {"Checksum": sha256(body), "Authorization": f"Bearer {self.fetcher.key}"}
        usual["Content-Length"] = str(len(body))
        with closing(HTTPConnection(self.fetcher.host, self.fetcher.port, timeout=10)) as connection:
            connection.putrequest("PUT", path, skip_accept_encoding=True)
            for name, value in (usual | dict(headers or {})).items():
                connection.putheader(name, value)
            connection.endheaders(body)
            return connection.getresponse().status


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def part_of(content: bytes) -> str:
    return f"parts/{sha256(content)}.arrow"


@contextmanager
def driving(folder: Path) -> Iterator[Driver]:
    (folder / "state" / "parts").mkdir(parents=True)
    cache = folder.parent / "cache"
    with serve_state(folder / "state", "127.0.0.1", cache, outbox=folder / "outbox") as fetcher:
        yield Driver(folder, fetcher)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    with driving(tmp_path / "driver") as driver:
        yield driver


@pytest.fixture
def full_driver(tmp_path: Path) -> Iterator[Driver]:
    """A driver whose disk has one megabyte."""
    folder = tmp_path / "driver"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"mounting a file system is not permitted here: {mounted.stderr.strip()}")
    with driving(folder) as driver:
        yield driver
    subprocess.run(["umount", str(folder)], check=True)


def sent(driver: Driver, name: str, content: bytes) -> None:
    path = driver.folder.parent / "sent"
    path.write_bytes(content)
    driver.fetcher.put(name, path)


@pytest.mark.parametrize("size", [0, 5, 3_000_001])
def test_an_executor_puts_a_part(driver: Driver, size: int) -> None:
    """Byte for byte, also if it is there already."""
    content = os.urandom(size)
    for _ in range(2):
        sent(driver, part_of(content), content)
        assert driver.files() == {f"state/{part_of(content)}": content}


@pytest.mark.parametrize("office", OFFICES)
def test_an_executor_puts_letters(driver: Driver, office: str) -> None:
    """For offices whose names have special characters too, into their own folders."""
    sent(driver, f"outbox/{office}/letters/{LETTERS}", b"letters")
    assert driver.files() == {f"outbox/{office}/letters/{LETTERS}": b"letters"}


def test_what_an_executor_puts_is_durable(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is synced before it gets its name, and its folder and new folders afterwards."""
    outbox = driver.folder / "outbox"
    events: list[tuple[str, str]] = []
    fsync, rename = os.fsync, Path.rename

    def synced(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        events.append(("sync", str(path.relative_to(driver.folder)) if path.is_dir() else "file"))
        fsync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        events.append(("rename", target.name))
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    sent(driver, f"outbox/west/letters/{LETTERS}", b"letters")
    folders = [("sync", "."), ("sync", "outbox"), ("sync", "outbox/west")]
    assert events == [*folders, ("sync", "file"), ("rename", LETTERS), ("sync", "outbox/west/letters")]
    assert (outbox / "west" / "letters" / LETTERS).exists()


@pytest.mark.parametrize(
    "path",
    [
        f"/outbox/../letters/{LETTERS}",
        f"/outbox/%2e%2e/letters/{LETTERS}",
        f"/outbox/west%2f..%2f..%2f/letters/{LETTERS}",
        f"/outbox/../../outbox/west/letters/{LETTERS}",
        f"/outbox//letters/{LETTERS}",
        f"/outbox/.hidden/letters/{LETTERS}",
        f"/outbox/a%00b/letters/{LETTERS}",
        f"/outbox/a%0ab/letters/{LETTERS}",
        f"//tmp/outbox/west/letters/{LETTERS}",
        f"/outbox/west/letters/..%2f{LETTERS}",
        f"/outbox/west/letters/{LETTERS}%00",
        f"/outbox/west/letters/{LETTERS}%0a",
        f"/outbox/west/letters/{'%d9%a0' * 20}-ab.parquet",  # digits, but not those of ASCII
        f"/outbox/west/{LETTERS}",
        "/outbox/west/letters/letters.parquet",
        "/outbox/status.json",
        f"/parts/../{part_of(b'content')}",
        f"/parts/{part_of(b'other')}",
        f"/{part_of(b'other')}",
        f"/segments/{sha256(b'content')}.segment",
        "/0.json",
        "/etc/passwd",
        "/",
    ],
)
def test_nothing_else_can_be_put(driver: Driver, path: str) -> None:
    """Neither elsewhere on the driver's disk, nor a part under the name of another."""
    assert driver.request(path, b"content") == 403
    assert driver.files() == {}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": "Bearer guess"}, 403),
        ({"Authorization": ""}, 403),
        ({"Content-Length": "-1"}, 403),
        ({"Content-Length": "x"}, 403),
        ({"Content-Length": ""}, 403),
        ({"Checksum": sha256(b"other")}, 400),
        ({"Checksum": ""}, 400),
    ],
)
def test_what_did_not_arrive_as_it_was_sent_is_refused(driver: Driver, headers: dict[str, str], status: int) -> None:
    """So is what has no key or no size. Nothing is left."""
    assert driver.request(f"/outbox/west/letters/{LETTERS}", b"content", headers) == status
    assert driver.files() == {}


def test_a_task_may_try_again_if_the_driver_refuses_a_file(driver: Driver) -> None:
    """It is no error of the state."""
    with pytest.raises(UnavailableError, match="refused a file: 403"):
        sent(driver._replace(fetcher=driver.fetcher._replace(key="guess")), part_of(b"rows"), b"rows")


def test_an_executor_that_dies_while_it_sends_leaves_nothing(
    driver: Driver, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Whether its host closes the connection or resets it. The driver logs nothing."""
    head = f"PUT /{part_of(bytes(9))} HTTP/1.1\r\nAuthorization: Bearer {driver.fetcher.key}\r\n"
    head += f"Checksum: {sha256(bytes(9))}\r\nContent-Length: 3000000\r\n\r\n"
    for linger in (struct.pack("ii", 0, 0), struct.pack("ii", 1, 0)):
        others = set(threading.enumerate())
        with socket.create_connection((driver.fetcher.host, driver.fetcher.port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.sendall(head.encode() + bytes(1_500_000))
            until(lambda: bool(driver.files()), 30, "the first bytes")
            receiving = set(threading.enumerate()) - others
        for thread in receiving:
            thread.join(30)
        assert not any(thread.is_alive() for thread in receiving)
        assert driver.files() == {}
    assert (capfd.readouterr().err, caplog.text) == ("", "")


@pytest.mark.parametrize("size", [2_000_000, 30_000_000])
def test_a_driver_with_a_full_disk_is_a_storage_error(full_driver: Driver, size: int) -> None:
    """In the task, with the reason, so that the batch waits for the disk; also if much is still to be sent."""
    for name in (part_of(bytes(size)), f"outbox/west/letters/{LETTERS}"):
        with pytest.raises(StorageError, match=r"the driver cannot store a file: .*full"):
            sent(full_driver, name, bytes(size))
    assert full_driver.files() == {}
    sent(full_driver, part_of(b"rows"), b"rows")
    assert full_driver.files() == {f"state/{part_of(b'rows')}": b"rows"}


def test_a_driver_that_does_not_take_files_is_reported(tmp_path: Path) -> None:
    """As unavailable: another attempt may succeed."""
    (tmp_path / "rows").write_bytes(b"rows")
    with serve_state(tmp_path, "127.0.0.1", tmp_path / "cache") as fetcher:
        gone = fetcher
    with pytest.raises(UnavailableError, match="cannot send a file"):
        gone.put(part_of(b"rows"), tmp_path / "rows")


def test_scratch_folders_of_killed_tasks_are_removed(fetcher: StateFetcher) -> None:
    """Some time later, with the unused files of the cache. Those of tasks that end are removed at once."""
    with fetcher.scratch() as ended:
        (ended / "west").mkdir()
    killed, running = (fetcher.cache / "scratch" / name for name in ("killed", "running"))
    for folder in (killed, running):
        (folder / "west" / "letters").mkdir(parents=True)
        (folder / "west" / "letters" / LETTERS).write_bytes(b"letters")
    os.utime(killed, (0, 0))
    fetcher.fetch([put(fetcher, b"rows")])
    assert [path.name for path in (fetcher.cache / "scratch").iterdir()] == ["running"]
