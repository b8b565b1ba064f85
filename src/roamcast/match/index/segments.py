"""Immutable files of arrays, named by their checksum and mapped into memory.

The processes of a host share one copy of a mapped file. A process verifies a file when it first opens it and keeps it
open while it is in use. A file that does not verify is never used.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import orjson

from roamcast.compiled import read_only
from roamcast.durable import storage_errors, sync_folder, write_atomic
from roamcast.errors import CorruptionError
from roamcast.match.kernels.postings import SegmentArrays

__all__ = ["FORMAT", "Arrays", "MappedArrays", "SegmentFolder", "file_name"]

FORMAT: Final = "roamcast-segment/3"
_SUFFIX: Final = ".segment"
_ALIGNMENT: Final = 64
_HINT: Final = "restore the whole pipeline folder, or start a new pipeline with --new"

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class MappedArrays:
    """The arrays of a verified file, read-only."""

    arrays: Arrays
    nbytes: int

    @classmethod
    def in_memory(cls, arrays: Arrays) -> Self:
        """Make what writing and opening these arrays would give, without a file."""
        return cls({name: read_only(array) for name, array in arrays.items()}, sum(a.nbytes for a in arrays.values()))

    @cached_property
    def segment(self) -> SegmentArrays:
        return SegmentArrays(**self.arrays)


_open_files: WeakValueDictionary[str, MappedArrays] = WeakValueDictionary()


class SegmentFolder:
    """The files of a folder, by checksum."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, checksum: str) -> Path:
        return self.folder / file_name(checksum)

    def write(self, arrays: Arrays) -> str:
        """Write a file and return its checksum. Durable on return. The same arrays make the same file."""
        content = _pack(arrays)
        checksum = hashlib.sha256(content).hexdigest()
        path = self.path(checksum)
        if not path.exists():
            write_atomic(path, content)
        else:  # perhaps from an attempt that failed before the name was durable
            with storage_errors(path):
                sync_folder(self.folder)
        return checksum

    def open(self, checksum: str) -> MappedArrays:
        """Open a file. Raises CorruptionError if it is missing, truncated, damaged or of another format."""
        mapped = _open_files.get(checksum)
        if mapped is None:
            path = self.path(checksum)
            mapped = _unpack(_map(path, checksum), path)
            _open_files[checksum] = mapped
        return mapped

    def sweep(self, keep: frozenset[str]) -> None:
        """Delete all files except those with the checksums `keep`. Mapped files stay readable until they are closed."""
        names = set(map(file_name, keep))
        with storage_errors(self.folder):
            for path in self.folder.iterdir():
                if path.name not in names:
                    path.unlink(missing_ok=True)


def file_name(checksum: str) -> str:
    return f"{checksum}{_SUFFIX}"


def _map(path: Path, checksum: str) -> mmap.mmap:
    with storage_errors(path):
        try:
            with path.open("rb") as file:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError as error:
            raise CorruptionError("a segment is missing", where=str(path), hint=_HINT) from error
        except ValueError as error:  # an empty file cannot be mapped
            raise CorruptionError("a segment is empty", where=str(path), hint=_HINT) from error
    if hashlib.sha256(content).hexdigest() != checksum:
        raise CorruptionError("a segment is damaged", where=str(path), hint=_HINT)
    return content


def _pack(arrays: Arrays) -> memoryview:
    """Return the content of a file: format, length of the header, header in JSON, arrays."""
    entries: list[tuple[str, str, tuple[int, ...], int]] = []
    size = 0
    for name, array in arrays.items():
        entries.append((name, array.dtype.str, array.shape, size))
        size = _align(size + array.nbytes)
    header = orjson.dumps({"arrays": entries})
    preamble = FORMAT.encode() + b"\n" + len(header).to_bytes(8, "little") + header
    content = bytearray(_align(len(preamble)) + size)
    content[: len(preamble)] = preamble
    view = np.frombuffer(content, np.uint8)
    for (_, _, _, first), array in zip(entries, arrays.values(), strict=True):
        at = _align(len(preamble)) + first
        view[at : at + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memoryview(content)


def _unpack(content: mmap.mmap, path: Path) -> MappedArrays:
    magic = FORMAT.encode() + b"\n"
    if content[: len(magic)] != magic:
        raise CorruptionError(f"not a {FORMAT} file", where=str(path), hint=_HINT)
    begin = len(magic) + 8
    length = int.from_bytes(content[len(magic) : begin], "little")
    entries = orjson.loads(content[begin : begin + length])["arrays"]
    arrays = {}
    for name, dtype, shape, first in entries:
        count = int(np.prod(shape, dtype=np.int64))
        at = _align(begin + length) + first
        # An empty array at the end of the file would begin after it.
        flat = np.frombuffer(content, dtype, count, at) if count else np.frombuffer(b"", dtype)
        arrays[name] = flat.reshape(shape)
    return MappedArrays(arrays, len(content))


def _align(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
