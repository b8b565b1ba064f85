"""Files of arrays: immutable, named by their checksum, mapped into memory.

However many processes of a host map a file, it is in memory once. A process verifies a file when it first opens it and
keeps it while somebody uses it. What does not verify is never used.
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

from roamcast.durable import storage_errors, sync_folder, write_atomic
from roamcast.errors import CorruptionError
from roamcast.match.index.layout import Body

__all__ = ["FORMAT", "Arrays", "Opened", "SegmentFolder", "file_name"]

FORMAT: Final = "roamcast-segment/2"
_SUFFIX: Final = ".segment"
_ALIGNED: Final = 64
_HINT: Final = "restore the whole pipeline folder, or start a new pipeline with --new"

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Opened:
    """The arrays of a file that was verified, read-only."""

    arrays: Arrays
    nbytes: int

    @classmethod
    def in_memory(cls, arrays: Arrays) -> Self:
        """As if they had been written and opened."""
        return cls({name: _frozen(array) for name, array in arrays.items()}, sum(a.nbytes for a in arrays.values()))

    @cached_property
    def body(self) -> Body:
        return Body(**self.arrays)


_opened: WeakValueDictionary[str, Opened] = WeakValueDictionary()


class SegmentFolder:
    """Files by checksum."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, checksum: str) -> Path:
        return self.folder / file_name(checksum)

    def write(self, arrays: Arrays) -> str:
        """Durable when it returns; gives the checksum. The same arrays make the same file."""
        content = _packed(arrays)
        checksum = hashlib.sha256(content).hexdigest()
        path = self.path(checksum)
        if not path.exists():
            write_atomic(path, content)
        else:  # perhaps from a try that was cut off before its name was durable
            with storage_errors(path):
                sync_folder(self.folder)
        return checksum

    def open(self, checksum: str) -> Opened:
        """Raises CorruptionError for a file that is missing, cut short, damaged or of another format."""
        opened = _opened.get(checksum)
        if opened is None:
            path = self.path(checksum)
            opened = _unpacked(_mapped(path, checksum), path)
            _opened[checksum] = opened
        return opened

    def sweep(self, keep: frozenset[str]) -> None:
        """Remove the files whose checksums nobody keeps. What is mapped stays readable for those who mapped it."""
        names = set(map(file_name, keep))
        with storage_errors(self.folder):
            for path in self.folder.iterdir():
                if path.name not in names:
                    path.unlink(missing_ok=True)


def file_name(checksum: str) -> str:
    return f"{checksum}{_SUFFIX}"


def _mapped(path: Path, checksum: str) -> mmap.mmap:
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


def _packed(arrays: Arrays) -> memoryview:
    """The format, the length of the header, the header in JSON, the arrays."""
    entries: list[tuple[str, str, tuple[int, ...], int]] = []
    size = 0
    for name, array in arrays.items():
        entries.append((name, array.dtype.str, array.shape, size))
        size = _up(size + array.nbytes)
    header = orjson.dumps({"arrays": entries})
    opening = FORMAT.encode() + b"\n" + len(header).to_bytes(8, "little") + header
    content = bytearray(_up(len(opening)) + size)
    content[: len(opening)] = opening
    view = np.frombuffer(content, np.uint8)
    for (_, _, _, first), array in zip(entries, arrays.values(), strict=True):
        at = _up(len(opening)) + first
        view[at : at + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memoryview(content)


def _unpacked(content: mmap.mmap, path: Path) -> Opened:
    marks = FORMAT.encode() + b"\n"
    if content[: len(marks)] != marks:
        raise CorruptionError(f"not a file of {FORMAT}", where=str(path), hint=_HINT)
    begin = len(marks) + 8
    length = int.from_bytes(content[len(marks) : begin], "little")
    entries = orjson.loads(content[begin : begin + length])["arrays"]
    arrays = {}
    for name, dtype, shape, first in entries:
        count = int(np.prod(shape, dtype=np.int64))
        at = _up(begin + length) + first
        # An empty array at the end of the file would begin beyond it.
        flat = np.frombuffer(content, dtype, count, at) if count else np.frombuffer(b"", dtype)
        arrays[name] = flat.reshape(shape)
    return Opened(arrays, len(content))


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def _up(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
