"""Versions of the archive: a version lists the compacted files that count. Publishing the next one is atomic.

    archive/versions/<n>.json    the newest counts; the one before stays for readers that are about to open it

What is in `recent` counts too, if the version knows the pipeline and has not compacted that batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

from roamcast.archive.files import ROOT, ArchiveFile
from roamcast.checked_json import pack, unpack
from roamcast.errors import CorruptionError
from roamcast.storage.port import Storage

__all__ = ["Coverage", "Erasure", "PipelineBatches", "Version", "add_coverage", "newest_version", "publish"]

FORMAT: Final = "roamcast-archive-version/1"
_VERSIONS: Final = f"{ROOT}/versions"
_KEPT: Final = 2
_HINT: Final = "restore it from a backup, or move the folder of the archive away to begin a new one"


class Coverage(NamedTuple):
    """A range of offsets of one node of which the archive has every record, and when these were written.

    It has everything that was written until `end`, and perhaps some records of the next microsecond.

    If older ones were deleted, it has them from `begin` on, and `first_offset` is a lower bound greater than 1.
    """

    first_offset: int
    last_offset: int
    begin: int
    end: int


CoverageByNode: TypeAlias = Mapping[str, tuple[Coverage, ...]]


class Erasure(NamedTuple):
    """Records of an entity that nobody may read any more: those before an offset of its node, and up to a batch.

    `left`: all of them. `forgotten`: those that tell where it was.
    """

    number: int
    kind: Literal["left", "forgotten"]
    node: str
    entity: str
    offset: int
    batch: int
    written: int


class PipelineBatches(NamedTuple):
    """The number of a pipeline's batch 0 in the archive, and its last batch that is compacted (-1: none)."""

    base: int
    compacted: int


@dataclass(frozen=True, slots=True)
class Version:
    """What counts. `erased` has, for each node, the time of its last erasure that is carried out everywhere.

    `garbage` are files that do not count any more, and since when, in nanoseconds; readers may still use them.
    """

    number: int = 0
    pipelines: Mapping[str, PipelineBatches] = field(default_factory=dict)
    files: tuple[ArchiveFile, ...] = ()
    coverage: CoverageByNode = field(default_factory=dict)
    erasures: tuple[Erasure, ...] = ()
    erased: Mapping[str, int] = field(default_factory=dict)
    erasure_count: int = 0
    garbage: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> bytes:
        content = {
            "number": self.number,
            "pipelines": {id: list(batches) for id, batches in self.pipelines.items()},
            "files": [file.to_json() for file in self.files],
            "coverage": {node: [list(each) for each in ranges] for node, ranges in self.coverage.items()},
            "erasures": [list(erasure) for erasure in self.erasures],
            "erased": dict(self.erased),
            "erasure_count": self.erasure_count,
            "garbage": dict(self.garbage),
        }
        return pack(FORMAT, content)

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Raises ValueError if it is something else, or damaged."""
        values: dict[str, Any] = unpack(content, FORMAT)
        return cls(
            values["number"],
            {id: PipelineBatches(*batches) for id, batches in values["pipelines"].items()},
            tuple(map(ArchiveFile.from_json, values["files"])),
            {node: tuple(Coverage(*each) for each in ranges) for node, ranges in values["coverage"].items()},
            tuple(Erasure(*erasure) for erasure in values["erasures"]),
            values["erased"],
            values["erasure_count"],
            values["garbage"],
        )


def add_coverage(coverage: CoverageByNode, more: Mapping[str, Coverage]) -> dict[str, tuple[Coverage, ...]]:
    """Coverage with a further range of some nodes. Ranges that touch become one."""
    result = dict(coverage)
    for node, new in more.items():
        ranges = result.get(node, ())
        if ranges and ranges[-1].last_offset + 1 >= new.first_offset:
            last = ranges[-1]
            joined = Coverage(last.first_offset, max(last.last_offset, new.last_offset), last.begin, new.end)
            result[node] = (*ranges[:-1], joined)
        else:
            result[node] = (*ranges, new)
    return result


def newest_version(storage: Storage) -> Version | None:
    """The version that counts; None if there is no archive. Raises CorruptionError if it is damaged."""
    while numbers := _numbers(storage):
        name = _name(numbers[-1])
        content = storage.get(name)
        if content is None:
            continue  # deleted meanwhile: there is a newer one
        try:
            return Version.from_json(content)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptionError(f"unreadable: {error}", where=f"{storage.url}/{name}", hint=_HINT) from error
    return None


def publish(storage: Storage, version: Version) -> bool:
    """Make a version the newest. False if another process has published one with this number."""
    if storage.create(_name(version.number), version.to_json()) is not None:
        return False
    storage.delete(_name(number) for number in _numbers(storage)[:-_KEPT])
    return True


def _name(number: int) -> str:
    return f"{_VERSIONS}/{number:020d}.json"


def _numbers(storage: Storage) -> Sequence[int]:
    names: Iterable[str] = (file.name.rpartition("/")[2].removesuffix(".json") for file in storage.files(_VERSIONS))
    return sorted(int(name) for name in names if name.isdecimal())
