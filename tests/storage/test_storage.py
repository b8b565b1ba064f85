"""Every storage keeps the same contract."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from peaks import peak_of
from s3 import NotAvailableError, S3Server, s3_server
from storages import new_folder, storage_at

from roamcast.errors import (
    InputError,
    MissingExtraError,
    NotFoundError,
    PermissionDeniedError,
    StorageError,
    UnavailableError,
)
from roamcast.storage.location import open_storage
from roamcast.storage.port import Storage

KINDS = ("folder", "file", "memory", "s3")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    try:
        with s3_server(tmp_path_factory.mktemp("server")) as server, pytest.MonkeyPatch.context() as patch:
            for name, value in server.environment.items():
                patch.setenv(name, value)
            yield server
    except NotAvailableError as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        request.getfixturevalue("server")
    (tmp_path / "storage").mkdir()
    unique = hashlib.sha256(request.node.name.encode()).hexdigest()
    return {
        "folder": str(tmp_path / "storage"),
        "file": f"file://{tmp_path}/storage",
        "memory": f"memory://bucket/{unique}",
        "s3": f"s3://bucket/{unique}/prefix",
    }[request.param]


@pytest.fixture
def storage(place: str) -> Storage:
    storage = storage_at(place)
    storage.check()
    return storage


def test_a_new_storage_is_empty(storage: Storage) -> None:
    """The check leaves nothing, and nothing is an answer."""
    assert storage.files("a") == []
    assert storage.get("a/b") is None
    storage.delete(["a/b"])


def test_what_is_put_is_there(storage: Storage, place: str) -> None:
    """For another client too, and it can be replaced."""
    storage.put("a/b/one", b"1")
    assert storage_at(place).get("a/b/one") == b"1"
    storage.put("a/b/one", b"two")
    assert storage.get("a/b/one") == b"two"
    assert storage.get("a/b") is None


def test_parts_of_a_file_can_be_read(storage: Storage) -> None:
    storage.put("a/b/one", b"0123456789")
    file = storage.open("a/b/one")
    assert file is not None
    with file:
        file.seek(4)
        assert file.read(3) == b"456"
        assert (file.seek(0, 2), file.read()) == (10, b"")
    assert storage.open("a/b/two") is None


def test_only_one_can_create_a_name(storage: Storage) -> None:
    """The others get what is there; who repeats the same is told that it is done."""
    assert storage.create("a/claim", b"mine") is None
    assert storage.create("a/claim", b"yours") == b"mine"
    assert storage.create("a/claim", b"mine") is None
    assert storage.get("a/claim") == b"mine"


def test_one_of_many_that_create_at_once_succeeds(place: str, storage: Storage) -> None:
    """All others see its content, and never half of it."""
    with ThreadPoolExecutor(8) as threads:
        for attempt in range(5):
            contents = [f"{attempt}-{number}".encode() * 2_000 for number in range(8)]
            found = list(threads.map(storage_at(place).create, [f"claims/{attempt}"] * 8, contents))
            assert found.count(None) == 1
            assert {each for each in found if each} == {contents[found.index(None)]}
            assert storage.get(f"claims/{attempt}") == contents[found.index(None)]


def test_lists_are_of_one_folder_in_order(storage: Storage) -> None:
    """With sizes, below folders of folders, and not of a folder whose name begins alike."""
    for name, size in (("a/2", 3), ("a/10", 0), ("a/b/c", 70_000), ("ab/1", 1)):
        storage.put(name, bytes(size))
    assert [(file.name, file.size) for file in storage.files("a")] == [("a/10", 0), ("a/2", 3), ("a/b/c", 70_000)]
    assert [file.name for file in storage.files("a/b")] == ["a/b/c"]
    storage.put("a/2", bytes(5))
    first, second = storage.files("a")[:2]
    assert (second.size, second.written_at >= first.written_at > 1_700_000_000_000_000_000) == (5, True)


@pytest.mark.parametrize("count", [1, 3])
def test_deleted_files_are_gone(storage: Storage, count: int) -> None:
    """Missing ones are ignored, and can be created again."""
    names = [f"a/{number}" for number in range(count)]
    for name in names:
        storage.create(name, b"before")
    storage.put("a/other", b"kept")
    storage.delete([*names, "a/missing"])
    assert [file.name for file in storage.files("a")] == ["a/other"]
    assert storage.create("a/0", b"after") is None


@pytest.mark.parametrize("size", [0, 1, 12_000_000])
def test_local_files_are_copied(storage: Storage, tmp_path: Path, size: int) -> None:
    """In both directions."""
    (tmp_path / "from").write_bytes(bytes(range(256)) * (size // 256) + b"x" * (size % 256))
    storage.put_file("files/one", tmp_path / "from")
    assert storage.get_file("files/one", tmp_path / "to")
    assert (tmp_path / "to").read_bytes() == (tmp_path / "from").read_bytes()
    assert not storage.get_file("files/two", tmp_path / "nothing")


@pytest.mark.parametrize("place", ["folder", "s3"], indirect=True)
def test_large_files_are_transferred_in_parts(storage: Storage, tmp_path: Path) -> None:
    """Not as a whole in memory, and few parts at a time."""
    size = 150 << 20
    with (tmp_path / "from").open("wb") as file:
        file.truncate(size)
        file.seek(size - 1)
        file.write(b"x")

    def transfer() -> None:
        storage.put_file("large", tmp_path / "from")
        assert storage.get_file("large", tmp_path / "to")

    _, peak = peak_of(transfer)
    assert peak < 40 << 20
    assert (tmp_path / "to").stat().st_size == size
    with (tmp_path / "to").open("rb") as file:
        file.seek(-2, os.SEEK_END)
        assert file.read() == b"\0x"


def test_many_transfers_can_run_at_once(storage: Storage) -> None:
    """A storage is thread-safe."""
    names = [f"many/{number:03}" for number in range(100)]
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda name: storage.put(name, name.encode() * 100), names))
        assert list(threads.map(storage.get, names)) == [name.encode() * 100 for name in names]
    assert [file.name for file in storage.files("many")] == names


@pytest.mark.parametrize(
    "url",
    ["", "s3://", "s3:///key", "http://host/x", "file://relative", "nothing://bucket", "memory://bucket/x"],
)
def test_a_bad_url_is_an_input_error(url: str) -> None:
    """It says what would do."""
    with pytest.raises(InputError, match=r"folder|s3://"):
        open_storage(url)


def test_a_missing_package_is_named() -> None:
    """With the extra for S3; that of Google is in none."""
    with pytest.raises(MissingExtraError, match=r"gcsfs.*pip install 'roamcast\[storage\]'"):
        open_storage("gs://bucket/x")


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """At the check."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        open_storage(str(tmp_path / "file" / "folder")).check()


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    """The check does not create it: it may not be mounted."""
    with pytest.raises(StorageError, match="is it mounted"):
        open_storage(str(tmp_path / "storage")).check()
    assert not (tmp_path / "storage").exists()


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """It does not look like an empty one."""
    storage = new_folder(tmp_path / "storage")
    (tmp_path / "storage" / "loop").symlink_to("loop")
    with pytest.raises(StorageError, match="symbolic links"):
        storage.files("loop")
    assert storage.files("nothing") == []


def test_a_file_system_without_links_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the check."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StorageError, match="no hard links"):
        new_folder(tmp_path / "storage")
    assert list((tmp_path / "storage").iterdir()) == []


def test_what_is_created_and_deleted_at_once_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a success of who did not create it."""
    storage = new_folder(tmp_path / "storage")
    storage.create("a", b"theirs")
    link = os.link

    def link_then_delete(*arguments: str) -> None:
        try:
            link(*arguments)
        finally:
            storage.delete(["a"])

    monkeypatch.setattr(os, "link", link_then_delete)
    with pytest.raises(StorageError, match="try again"):
        storage.create("a", b"ours")


def test_files_that_were_left_half_written_are_deleted(tmp_path: Path) -> None:
    """A day later, at the check. They are not listed before."""
    storage = new_folder(tmp_path / "storage")
    for age in ("old", "new"):
        storage.put(f"a/{age}", b"")
        (tmp_path / "storage" / "a" / f".tmp-{age}").write_bytes(b"half")
    os.utime(tmp_path / "storage" / "a" / ".tmp-old", (0, 0))
    storage.check()
    assert [file.name for file in storage.files("a")] == ["a/new", "a/old"]
    assert sorted(path.name for path in (tmp_path / "storage" / "a").iterdir()) == [".tmp-new", "new", "old"]


@pytest.mark.parametrize("kind", ["folder", "memory", "s3"])
def test_errors_of_the_local_disk_are_told_apart(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    """A folder that is missing here is not a bucket that is missing there."""
    if kind == "s3":
        request.getfixturevalue("server")
    (tmp_path / "storage").mkdir()
    places = {"folder": str(tmp_path / "storage"), "memory": f"memory://bucket{tmp_path}", "s3": "s3://bucket/local"}
    storage = storage_at(places[kind])
    storage.put("a", b"1")
    for transfer in (storage.put_file, storage.get_file):
        with pytest.raises(StorageError, match="check the data folder"):
            transfer("a", tmp_path / "missing" / "file")


def test_a_missing_bucket_is_an_error(server: S3Server) -> None:
    """At the check; later it does not look like an empty one."""
    storage = open_storage("s3://no-such-bucket/prefix")
    with pytest.raises(NotFoundError, match="no such bucket"):
        storage.check()
    for read in (lambda: storage.get("a"), lambda: storage.files("a")):
        with pytest.raises(StorageError, match="no such bucket"):
            read()


def test_refused_credentials_are_an_error(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """That names the variables."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(PermissionDeniedError, match=r"access refused.*AWS_ACCESS_KEY_ID"):
        open_storage("s3://bucket/prefix").check()


def test_missing_credentials_are_an_error(server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also without any configuration."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(PermissionDeniedError, match=r"access refused.*AWS_ACCESS_KEY_ID"):
        open_storage("s3://bucket/prefix").check()


def test_a_storage_that_is_down_is_unavailable(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the check. Later it is a StorageError, which is retried; then it works again."""
    storage = open_storage("s3://bucket/down")
    storage.put("a", b"1")
    server.stop()
    try:
        calls: list[Callable[[], object]] = [
            lambda: storage.get("a"), lambda: storage.put("b", b""), lambda: storage.create("c", b""),
            lambda: storage.files("d"), lambda: storage.delete(["a"]), storage.check,
        ]  # fmt: skip
        with ThreadPoolExecutor(len(calls)) as threads:
            *errors, checked = [each.exception() for each in [threads.submit(call) for call in calls]]
        assert {type(error) for error in errors} == {StorageError}
        assert type(checked) is UnavailableError
        assert all("AWS_ENDPOINT_URL" in str(error) for error in [*errors, checked])
    finally:
        server.start()
    assert storage.get("a") == b"1"
