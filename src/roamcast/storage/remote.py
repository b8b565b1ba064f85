"""Storage in an object store such as S3, by fsspec."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, cast

from roamcast.durable import storage_errors
from roamcast.errors import (
    InputError,
    MissingExtraError,
    NotFoundError,
    PermissionDeniedError,
    RoamcastError,
    StorageError,
    UnavailableError,
)
from roamcast.storage.checks import check_create
from roamcast.storage.port import StoredFile

__all__ = ["PROTOCOLS", "RemoteStorage"]

PROTOCOLS: Final = ("s3", "gs", "gcs", "abfs", "az")
"""Object stores whose fsspec adapters create a file atomically, and only if there is none of that name."""

_S3: Final = {
    "max_concurrency": 1,  # of the parts of a file, which are in memory; several files are transferred at once
    "config_kwargs": {
        "connect_timeout": 5,
        "read_timeout": 30,
        "max_pool_connections": 32,
        "retries": {"max_attempts": 1},
    },
}
_ATTEMPTS: Final = 2  # of s3fs, for errors that botocore does not retry; callers repeat what fails for longer
_PART_BYTES: Final = 8 << 20
_READ_BYTES: Final = 1 << 20  # at least
_DELETED_AT_ONCE: Final = 1_000
_NO_CREDENTIALS: Final = frozenset({"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"})
_FORBIDDEN: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_REFUSED_HINT: Final = "check the credentials (AWS_ACCESS_KEY_ID and the like) and what they allow"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_TEXT_LENGTH: Final = 200
_UNREACHABLE_HINT: Final = "check the endpoint (AWS_ENDPOINT_URL) and the network"


class RemoteStorage:
    """Files below a URL such as s3://bucket/prefix. See `port.Storage`."""

    def __init__(self, url: str) -> None:
        """Of one of the PROTOCOLS. Raises InputError or MissingExtraError. Nothing is sent yet."""
        protocol, _, root = url.partition("://")
        if not root.strip("/") or root.startswith("/"):
            raise InputError("no bucket", where=url, hint="such as s3://bucket/prefix")
        self._is_s3 = protocol == "s3"
        options: dict[str, Any] = _S3 if self._is_s3 else {}
        try:
            import fsspec

            logging.getLogger("aiobotocore").setLevel(logging.WARNING)  # it says at each start what it has found
            self._files = fsspec.filesystem(protocol, use_listings_cache=False, skip_instance_cache=True, **options)
        except ImportError as error:
            raise MissingExtraError(
                f"{protocol}:// needs a package that is not installed: {error}",
                where=url,
                hint="for S3: pip install 'roamcast[storage]'",
            ) from error
        if self._is_s3:
            self._files.retries = _ATTEMPTS
        self.url = url.rstrip("/")
        self._root = root.strip("/")

    def check(self) -> None:
        try:
            check_create(self)
        except StorageError as error:
            raise _refusal(error.__cause__, self.url) or UnavailableError(
                error.message, where=self.url, hint=error.hint
            ) from error

    def put(self, name: str, content: bytes) -> None:
        with self._errors():
            self._files.pipe_file(self._path(name), content)

    def put_file(self, name: str, path: Path) -> None:
        with storage_errors(path):
            path.open("rb").close()  # a file that cannot be read is not an error of the storage
        options: dict[str, Any] = {"chunksize": _PART_BYTES} if self._is_s3 else {}
        with self._errors():
            self._files.put_file(str(path), self._path(name), **options)

    def create(self, name: str, content: bytes) -> bytes | None:
        try:
            with self._errors():
                self._files.pipe_file(self._path(name), content, mode="create")
        except StorageError:
            # It exists, or the answer was lost: what is there decides.
            there = self.get(name)
            if there is None:
                raise
            return None if there == content else there
        return None

    def get(self, name: str) -> bytes | None:
        with self._errors():
            try:
                content: bytes = self._files.cat_file(self._path(name))
            except FileNotFoundError as error:
                _check_missing(error)
                return None
            return content

    def open(self, name: str) -> BinaryIO | None:
        with self._errors():
            try:
                file = self._files.open(self._path(name), "rb", cache_type="readahead", block_size=_READ_BYTES)
            except FileNotFoundError as error:
                _check_missing(error)
                return None
        return cast(BinaryIO, _RemoteFile(file, self._errors))

    def get_file(self, name: str, path: Path) -> bool:
        with storage_errors(path):
            path.touch()  # a file that cannot be written is not an error of the storage
        with self._errors(path):
            try:
                self._files.get_file(self._path(name), str(path))
            except FileNotFoundError as error:
                _check_missing(error)
                path.unlink(missing_ok=True)
                return False
            return True

    def files(self, folder: str) -> list[StoredFile]:
        with self._errors():
            try:
                found = self._files.find(self._path(folder), detail=True)
            except FileNotFoundError as error:
                _check_missing(error)
                return []
            start = len(self._path(""))
            files = [(path.lstrip("/")[start:], entry) for path, entry in found.items()]
            return sorted(StoredFile(name, entry["size"], _written_at(entry)) for name, entry in files)

    def delete(self, names: Iterable[str]) -> None:
        paths = [self._path(name) for name in names]
        for start in range(0, len(paths), _DELETED_AT_ONCE):
            with self._errors():
                self._delete(paths[start : start + _DELETED_AT_ONCE])

    def _delete(self, paths: list[str]) -> None:
        if len(paths) > 1 and self._is_s3:
            self._delete_at_once(paths)
            return
        for path in paths:
            with suppress(FileNotFoundError):
                self._files.rm_file(path)

    def _delete_at_once(self, paths: list[str]) -> None:
        """In one request. (`rm` does, too, but does not tell what S3 has refused.)"""
        bucket = self._root.partition("/")[0]
        objects = [{"Key": path.removeprefix(f"{bucket}/")} for path in paths]
        answer = self._files.call_s3("delete_objects", Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
        if refused := [error for error in answer.get("Errors", ()) if error.get("Code") != "NoSuchKey"]:
            first = refused[0]
            error = PermissionError if first.get("Code") == "AccessDenied" else OSError
            raise error(f"{len(refused)} files cannot be deleted, such as {first.get('Key')}: {first.get('Message')}")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _errors(self, local: Path | None = None) -> Iterator[None]:
        """Convert whatever an adapter raises: each has errors of its own. Some are of the `local` disk."""
        try:
            yield
        except Exception as error:
            if local is not None and getattr(error, "errno", None) in _FULL:
                with storage_errors(local):
                    raise
            refusal = _refusal(error, self.url)
            message, hint = (refusal.message, refusal.hint) if refusal else (_text(error), _UNREACHABLE_HINT)
            raise StorageError(f"the storage does not work: {message}", where=self.url, hint=hint) from error


class _RemoteFile:
    """A file that is read, with the errors of the storage."""

    def __init__(self, file: BinaryIO, errors: Callable[[], AbstractContextManager[None]]) -> None:
        self._file = file
        self._errors = errors

    def read(self, size: int = -1) -> bytes:
        with self._errors():
            return self._file.read(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _check_missing(error: FileNotFoundError) -> None:
    """A missing file is an answer, a missing bucket is not."""
    if _response(error).get("Error", {}).get("Code") == "NoSuchBucket":
        raise error


def _response(error: BaseException | None) -> dict[str, Any]:
    """What S3 said, in the words of botocore; {} for other errors."""
    return getattr(error and error.__cause__, "response", None) or {}


def _refusal(error: BaseException | None, url: str) -> RoamcastError | None:
    """What an operator has to change before the storage can work; None if it may work later."""
    status = _response(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
    if isinstance(error, PermissionError) or status in _FORBIDDEN or type(error).__name__ in _NO_CREDENTIALS:
        return PermissionDeniedError(f"access refused: {_text(error)}", where=url, hint=_REFUSED_HINT)
    if isinstance(error, FileNotFoundError):
        return NotFoundError(f"no such bucket: {_text(error)}", where=url, hint="create it, or check the name")
    return None


def _text(error: BaseException | None) -> str:
    """What an adapter says, without the rest of a long answer: nodes show it to everybody."""
    return str(error).partition("\n")[0][:_TEXT_LENGTH] or type(error).__name__


def _written_at(entry: dict[str, Any]) -> int:
    """If it is unknown: now, so that nothing is taken for old."""
    written = entry.get("LastModified") or entry.get("updated") or entry.get("last_modified") or entry.get("created")
    if isinstance(written, str):
        written = datetime.fromisoformat(written)
    seconds = written.timestamp() if isinstance(written, datetime) else float(written or time.time())
    return round(seconds * 1_000_000_000)
