"""How executors on other hosts come by the files of a state and by the journal: from the driver, over HTTP.

Files of the state are immutable and named by the checksum of what is in them. So what a host has fetched once, all its
processes use, and nothing in its cache is ever out of date. Segments of the journal are read once and not kept.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, IncompleteRead
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final, NamedTuple

import orjson
import pyarrow as pa

from roamcast.durable import storage_errors
from roamcast.errors import CorruptionError, RoamcastError, UnavailableError
from roamcast.journal.segments import JournalFolder, Segment, read

__all__ = ["CACHE", "Supplier", "supplying"]

log = logging.getLogger(__name__)

_FILE: Final = re.compile(r"(?:parts|segments)/([0-9a-f]{64})\.(?:arrow|segment)")
_OFFSETS: Final = re.compile(r"journal/([A-Za-z0-9][A-Za-z0-9._-]{0,63})/([0-9]{1,19})-([0-9]{1,19})")
_SEGMENT: Final = re.compile(r"journal/[A-Za-z0-9][A-Za-z0-9._-]{0,63}/[0-9]{20}-[0-9]{20}\.parquet")
CACHE: Final = "ROAMCAST_CACHE"
"""A worker whose environment has this keeps its cache there."""
_UNUSED: Final = 3600.0  # seconds after which a file may leave a cache
_PATIENCE: Final = 30.0  # seconds without a byte
_POLL: Final = 0.05
_CHUNK: Final = 1 << 20
_READING: Final = "journal-"
_HINT: Final = "restore the whole pipeline folder, or start a new pipeline with --new"


class Supplier(NamedTuple):
    """Where the files are to be had, the key to it, and the folder that is the cache, on whichever host that is."""

    host: str
    port: int
    key: str
    cache: Path

    def at_hand(self, files: Iterable[str]) -> Path:
        """The cache, with all of these files in it. They are named as in the state's folder.

        Raises UnavailableError while the driver does not answer, CorruptionError for a file that is damaged there or
        missing, StorageError when this host's disk refuses.
        """
        missing = [file for file in files if not _used(self.folder / file)]
        for file in missing:
            self._fetch(file)
        if missing:
            _sweep(self.folder)
        return self.folder

    def journal(self, node: str, after: int, through: int) -> Iterator[pa.RecordBatch]:
        """The records of a node with after < offset <= through, as the driver's disk has them.

        Raises as `at_hand` does, and CorruptionError for what is not there.
        """
        listed = orjson.loads(b"".join(self._content(f"journal/{node}/{after}-{through}")))
        if "error" in listed:
            raise CorruptionError(listed["error"], where=f"journal/{node}", hint=listed["hint"])
        with storage_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=_READING) as folder:
            yield from read(map(partial(self._segment, node, Path(folder)), listed["segments"]), after, through)

    def _segment(self, node: str, folder: Path, named: list[int]) -> Segment:
        first, last = named
        path = folder / f"{first:020d}-{last:020d}.parquet"
        with storage_errors(path):
            path.write_bytes(b"".join(self._content(f"journal/{node}/{path.name}")))
        return Segment(path, first, last)

    @property
    def folder(self) -> Path:
        """The cache on this host, or of this worker."""
        return Path(os.environ.get(CACHE) or self.cache)

    def to_json(self) -> str:
        return orjson.dumps({**self._asdict(), "cache": str(self.cache)}).decode()

    @classmethod
    def from_json(cls, text: str) -> Supplier:
        content = orjson.loads(text)
        return cls(content["host"], content["port"], content["key"], Path(content["cache"]))

    def drop(self, files: Iterable[str]) -> None:
        """Forget these, which have been damaged here."""
        with storage_errors(self.folder):
            for file in files:
                (self.folder / file).unlink(missing_ok=True)

    def _fetch(self, file: str) -> None:
        target = self.folder / file
        with storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Of a name of its own: another process may be fetching the same file.
            descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix="fetch-")
        try:
            digest = hashlib.sha256()
            with os.fdopen(descriptor, "wb") as sink:
                for chunk in self._content(file):
                    digest.update(chunk)
                    with storage_errors(target):
                        sink.write(chunk)
            if digest.hexdigest() != target.stem:
                raise CorruptionError("a file of the state is damaged", where=file, hint=_HINT)
            with storage_errors(target):
                Path(temporary).rename(target)
        finally:
            Path(temporary).unlink(missing_ok=True)

    def _content(self, file: str) -> Iterator[bytes]:
        where = f"{self.host}:{self.port}"
        with closing(HTTPConnection(self.host, self.port, timeout=_PATIENCE)) as connection:
            try:
                connection.request("GET", f"/{file}", headers={"Authorization": f"Bearer {self.key}"})
                answer = connection.getresponse()
                if answer.status == HTTPStatus.NOT_FOUND:
                    raise CorruptionError("a file of the state is missing", where=file, hint=_HINT)
                if answer.status != HTTPStatus.OK:
                    hint = "another pipeline may have taken this one's place"
                    raise UnavailableError("the driver refuses a file of the state", where=where, hint=hint)
                while chunk := answer.read(_CHUNK):
                    yield chunk
                if answer.length:  # http.client says nothing of what was cut off
                    raise IncompleteRead(b"", answer.length)
            except (OSError, HTTPException) as error:
                hint = "can this host reach the driver's? see --host"
                raise UnavailableError(
                    f"the driver gives no file of the state: {error}", where=where, hint=hint
                ) from error


def _used(path: Path) -> bool:
    """Whether it is there; if so, it was used now."""
    with storage_errors(path):
        try:
            os.utime(path)
        except FileNotFoundError:
            return False
    return True


def _sweep(cache: Path) -> None:
    """Remove what nobody has used for long. Those who have mapped it keep it; who wants it again fetches it again."""
    before = time.time() - _UNUSED
    with storage_errors(cache):
        for path in cache.glob("*/*"):
            try:
                if path.stat().st_mtime < before:
                    path.unlink()
            except FileNotFoundError:  # another process was faster
                continue
        for folder in cache.glob(f"{_READING}*"):  # of tasks that were killed
            with suppress(OSError):  # it is gone, or in use after all
                if folder.stat().st_mtime < before:
                    folder.rmdir()


@contextmanager
def supplying(folder: Path, host: str, cache: Path, journal: Path | None = None) -> Iterator[Supplier]:
    """On the driver: give the files of the state in `folder`, and the journal, to whoever has the key.

    It listens at any free port of `host`. Raises UnavailableError if that is no address of this machine.
    """
    key = secrets.token_urlsafe(32)
    try:
        server = _Server((host, 0), partial(_Handler, folder, journal, key))
    except OSError as error:
        hint = "give a name or an address of this machine that the workers can reach"
        raise UnavailableError(f"cannot listen at {host}: {error.strerror}", where="--host", hint=hint) from error
    thread = Thread(target=server.serve_forever, args=(_POLL,), name="supply", daemon=True)
    thread.start()
    try:
        yield Supplier(host, server.server_port, key, cache)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """An executor that is gone in the middle of an answer needs no word; others are told of by what they lack."""
        if not isinstance(sys.exception(), OSError):
            log.exception("a request for files of the state failed")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _PATIENCE

    def __init__(self, folder: Path, journal: Path | None, key: str, *args: object) -> None:
        self._folder = folder
        self._journal = journal
        self._key = key
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "").encode()
        if not hmac.compare_digest(given, f"Bearer {self._key}".encode()):
            self._refuse(HTTPStatus.FORBIDDEN)
            return
        name = self.path.removeprefix("/")
        if self._journal is not None and (offset_range := _OFFSETS.fullmatch(name)):
            self._list(self._journal, offset_range[1], int(offset_range[2]), int(offset_range[3]))
        elif self._journal is not None and _SEGMENT.fullmatch(name):
            self._give(self._journal / name.removeprefix("journal/"))
        elif _FILE.fullmatch(name):
            self._give(self._folder / name)
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def _list(self, journal: Path, node: str, after: int, through: int) -> None:
        """The segments that hold an offset range; or why there are none."""
        try:
            found = JournalFolder(journal, node).between(after, through)
            content = orjson.dumps({"segments": [[segment.first, segment.last] for segment in found]})
        except RoamcastError as error:
            content = orjson.dumps({"error": error.message, "hint": error.hint})
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _give(self, path: Path) -> None:
        try:
            file = path.open("rb")
        except FileNotFoundError:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        with file:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size))
            self.end_headers()
            shutil.copyfileobj(file, self.wfile, _CHUNK)

    def _refuse(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: what fails, the executor tells."""
