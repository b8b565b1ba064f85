"""How executors on other hosts get the files of the state, and the journal: from the driver, over HTTP.

Files of the state are immutable and named by their checksum, so all processes of a host share one cache, and nothing in
it is ever outdated. Segments of the journal are read once and not cached. Executors also put files there: new parts of
the state, and letters.
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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import BinaryIO, Final, NamedTuple
from urllib.parse import quote, unquote

import orjson

from roamcast.durable import make_folder, storage_errors, sync_folder
from roamcast.errors import CorruptionError, StorageError, UnavailableError
from roamcast.journal.port import RecordReader
from roamcast.journal.remote import JournalServer, RemoteJournal
from roamcast.pipeline.state.parts import RESTORE_HINT

__all__ = ["CACHE", "StateFetcher", "serve_state"]

log = logging.getLogger(__name__)

_LETTERS: Final = r"outbox/[^/.\x00-\x1f\x7f][^/\x00-\x1f\x7f]*/letters/[0-9]{20}-[0-9a-f-]+\.parquet"
_NEW_FILE: Final = re.compile(rf"parts/([0-9a-f]{{64}})\.arrow|{_LETTERS}")
_CHECKSUM: Final = "Checksum"
_FILE: Final = re.compile(r"(?:parts|segments)/([0-9a-f]{64})\.(?:arrow|segment)")
_JOURNAL: Final = "journal/"
_SCRATCH: Final = "scratch"  # in the cache folder
CACHE: Final = "ROAMCAST_CACHE"
"""The environment variable with which a worker overrides the cache folder."""
_UNUSED_S: Final = 3600.0  # a file that was not used for so long may leave the cache
_TIMEOUT_S: Final = 30.0  # without a byte
_PUT_TIMEOUT_S: Final = 300.0  # the driver's disk may be busy with the files of all tasks
_POLL_S: Final = 0.05
_CHUNK: Final = 1 << 20


class StateFetcher(NamedTuple):
    """Fetches files from the state server at `host` and `port`. `cache` is a folder on whichever host this runs."""

    host: str
    port: int
    key: str
    cache: Path

    @property
    def folder(self) -> Path:
        """The cache folder of this host, or of this worker."""
        return Path(os.environ.get(CACHE) or self.cache)

    def fetch(self, files: Iterable[str]) -> Path:
        """Fetch the files that are not in the cache yet; return the cache folder. Names are those in the state folder.

        Raises UnavailableError if the driver does not respond, CorruptionError for a file that is damaged or missing
        there, StorageError if this host's disk refuses.
        """
        missing = [file for file in files if not _touch(self.folder / file)]
        for file in missing:
            self._fetch(file)
        if missing:
            _sweep(self.folder)
        return self.folder

    def put(self, name: str, path: Path) -> None:
        """Send a file to the driver, which has it durably afterwards.

        Raises UnavailableError if the driver does not respond, StorageError if its disk refuses.
        """
        with storage_errors(path), path.open("rb") as file:
            headers = {_CHECKSUM: hashlib.file_digest(file, "sha256").hexdigest()}
            headers["Content-Length"] = str(file.tell())
            file.seek(0)
            with self._request("PUT", quote(name), headers, file) as response:
                content = response.read().decode()
                if response.status == HTTPStatus.INSUFFICIENT_STORAGE:
                    raise StorageError(f"the driver cannot store a file: {content}", where=name)
                if response.status != HTTPStatus.CREATED:
                    raise UnavailableError(f"the driver refused a file: {response.status}", where=name)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder on this host for files on their way to the driver. What killed tasks leave is removed some time."""
        parent = self.folder / _SCRATCH
        with storage_errors(parent):
            parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder = Path(tempfile.mkdtemp(dir=parent))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def journal(self) -> RecordReader:
        """The driver's journals."""
        return RemoteJournal(self._request_journal)

    def discard(self, files: Iterable[str]) -> None:
        """Remove files from the cache because they are damaged there."""
        with storage_errors(self.folder):
            for file in files:
                (self.folder / file).unlink(missing_ok=True)

    def to_json(self) -> str:
        return orjson.dumps({**self._asdict(), "cache": str(self.cache)}).decode()

    @classmethod
    def from_json(cls, text: str) -> StateFetcher:
        content = orjson.loads(text)
        return cls(content["host"], content["port"], content["key"], Path(content["cache"]))

    def _request_journal(self, request: str) -> bytes:
        return b"".join(self._get(_JOURNAL + request))

    def _fetch(self, file: str) -> None:
        target = self.folder / file
        with storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # A unique name, because another process may be fetching the same file.
            descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix="fetch-")
        try:
            digest = hashlib.sha256()
            with os.fdopen(descriptor, "wb") as sink:
                for chunk in self._get(file):
                    digest.update(chunk)
                    with storage_errors(target):
                        sink.write(chunk)
            if digest.hexdigest() != target.stem:
                raise CorruptionError("a file of the state is damaged", where=file, hint=RESTORE_HINT)
            with storage_errors(target):
                Path(temporary).rename(target)
        finally:
            Path(temporary).unlink(missing_ok=True)

    def _get(self, file: str) -> Iterator[bytes]:
        with self._request("GET", file) as response:
            if response.status == HTTPStatus.NOT_FOUND:
                raise CorruptionError("a file of the state is missing", where=file, hint=RESTORE_HINT)
            if response.status != HTTPStatus.OK:
                where, hint = f"{self.host}:{self.port}", "another pipeline may have replaced this one"
                raise UnavailableError("the driver refused a file of the state", where=where, hint=hint)
            while chunk := response.read(_CHUNK):
                yield chunk
            if response.length:  # http.client does not report a truncated body
                raise IncompleteRead(b"", response.length)

    @contextmanager
    def _request(
        self, method: str, name: str, headers: Mapping[str, str] | None = None, body: BinaryIO | None = None
    ) -> Iterator[HTTPResponse]:
        where = f"{self.host}:{self.port}"
        timeout = _PUT_TIMEOUT_S if method == "PUT" else _TIMEOUT_S
        with closing(HTTPConnection(self.host, self.port, timeout=timeout)) as connection:
            try:
                headers = {"Authorization": f"Bearer {self.key}", **(headers or {})}
                connection.request(method, f"/{name}", body, headers)
                yield connection.getresponse()
            except (OSError, HTTPException) as error:
                hint = "check that this host can reach the driver (see --host)"
                what = "fetch a file of the state from" if method == "GET" else "send a file to"
                raise UnavailableError(f"cannot {what} the driver: {error}", where=where, hint=hint) from error


def _touch(path: Path) -> bool:
    """Mark a file as used now; False if it does not exist."""
    with storage_errors(path):
        try:
            os.utime(path)
        except FileNotFoundError:
            return False
    return True


def _sweep(cache: Path) -> None:
    """Remove unused files. Processes that have mapped a file keep it, others fetch it again when they need it."""
    before = time.time() - _UNUSED_S
    with storage_errors(cache):
        for path in cache.glob("*/*"):
            try:
                if path.stat().st_mtime < before:
                    shutil.rmtree(path) if path.parent.name == _SCRATCH else path.unlink()
            except FileNotFoundError:  # another process was faster
                continue


@contextmanager
def serve_state(
    folder: Path, host: str, cache: Path, journal: JournalServer | None = None, outbox: Path | None = None
) -> Iterator[StateFetcher]:
    """On the driver: serve the files of the state in `folder`, and the journal, to clients that have the key.

    They may also put new parts there, and letters into the `outbox`.
    Listens on any free port of `host`. Raises UnavailableError if that is not an address of this machine.
    """
    key = secrets.token_urlsafe(32)
    try:
        server = _StateServer((host, 0), partial(_StateHandler, folder, journal, outbox, key))
    except OSError as error:
        hint = "pass a name or an address of this machine that the workers can reach"
        raise UnavailableError(f"cannot listen on {host}: {error.strerror}", where="--host", hint=hint) from error
    thread = Thread(target=server.serve_forever, args=(_POLL_S,), name="state-server", daemon=True)
    thread.start()
    try:
        yield StateFetcher(host, server.server_port, key, cache)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _StateServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # tasks connect at the same time; one that is dropped tries again after a second

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect mid-response; log other errors."""
        if not isinstance(sys.exception(), OSError):
            log.exception("a request for files of the state failed")


class _StateHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _TIMEOUT_S

    def __init__(
        self, folder: Path, journal: JournalServer | None, outbox: Path | None, key: str, *args: object
    ) -> None:
        self._folder = folder
        self._outbox = outbox
        self._journal = journal
        self._key = key
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        if not self._is_authorized():
            self._refuse(HTTPStatus.FORBIDDEN)
            return
        name = self.path.removeprefix("/")
        if self._journal is not None and name.startswith(_JOURNAL):
            self._send_content(self._journal.answer(name.removeprefix(_JOURNAL)))
        elif _FILE.fullmatch(name):
            self._send_file(self._folder / name)
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def do_PUT(self) -> None:
        name, checksum = unquote(self.path.removeprefix("/")), self.headers.get(_CHECKSUM, "")
        size = self.headers.get("Content-Length", "")
        if not self._is_authorized() or not size.isdecimal() or not (target := self._target(name, checksum)):
            self.close_connection = True  # the body is not read
            self._refuse(HTTPStatus.FORBIDDEN)
            return
        body = self._read_body(int(size))
        try:
            received = _receive(body, target, checksum)
        except StorageError as error:
            for _ in body:  # a client that is still sending would not see the response
                pass
            self._send_content(str(error).encode(), HTTPStatus.INSUFFICIENT_STORAGE)
            return
        self._send_content(b"", HTTPStatus.CREATED if received else HTTPStatus.BAD_REQUEST)

    def _is_authorized(self) -> bool:
        authorization = self.headers.get("Authorization", "").encode()
        return hmac.compare_digest(authorization, f"Bearer {self._key}".encode())

    def _target(self, name: str, checksum: str) -> Path | None:
        """Where a file that an executor sends belongs; None if it may not send this."""
        found = _NEW_FILE.fullmatch(name)
        if found is None or (found[1] is not None and found[1] != checksum):
            return None
        if found[1] is not None:
            return self._folder / name
        return None if self._outbox is None else self._outbox / name.removeprefix("outbox/")

    def _read_body(self, size: int) -> Iterator[bytes]:
        """Ends early if the client does."""
        while size and (chunk := self.rfile.read(min(size, _CHUNK))):
            size -= len(chunk)
            yield chunk

    def _send_content(self, content: bytes | None, status: HTTPStatus = HTTPStatus.OK) -> None:
        if content is None:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        self.send_response(status)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _send_file(self, path: Path) -> None:
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
        """Log nothing: the executor reports what fails."""


def _receive(body: Iterable[bytes], target: Path, checksum: str) -> bool:
    """Store a file durably; False if it did not arrive as it was sent. Raises StorageError.

    Until it is whole, it has another name that begins with that of the file: so it is removed with the files of other
    attempts.
    """
    make_folder(target.parent)
    digest = hashlib.sha256()
    with storage_errors(target):
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f"{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as sink:
            for chunk in body:
                digest.update(chunk)
                with storage_errors(target):
                    sink.write(chunk)
            with storage_errors(target):
                sink.flush()
                os.fsync(sink.fileno())
        if digest.hexdigest() != checksum:
            return False
        with storage_errors(target):
            Path(temporary).rename(target)
            sync_folder(target.parent)
        return True
    finally:
        Path(temporary).unlink(missing_ok=True)
