"""Records of batches: which letter files have the letters of a batch to an office."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from roamcast.checked_json import pack, unpack
from roamcast.errors import CorruptionError

__all__ = ["FORMAT", "BatchRecord", "LetterFile", "batch_name", "damaged", "pack_records", "parse_record"]

FORMAT: Final = "roamcast-outbox/7"
"""Of records, letter files and the status."""

_FILE_NAME: Final = re.compile(r"\w[\w.-]*")
_RESTORE_HINT: Final = "restore it from a backup: its letters exist nowhere else"


class LetterFile(NamedTuple):
    """A file of letters to an office, in the folder `letters` of the office."""

    office: str
    name: str
    letters: int


class BatchRecord(NamedTuple):
    """The record of a batch for an office: the name and content of its file in the folder of the office."""

    office: str
    name: str
    content: bytes


def pack_records(pipeline: str, batch: int, files: Sequence[LetterFile]) -> list[BatchRecord]:
    """The records of a batch, one for each office."""
    names: dict[str, list[tuple[str, int]]] = {}
    for file in files:
        names.setdefault(file.office, []).append((file.name, file.letters))
    name = f"{batch_name(pipeline, batch)}.json"
    contents = {office: {"pipeline": pipeline, "batch": batch, "files": names[office]} for office in names}
    return [BatchRecord(office, name, pack(FORMAT, content)) for office, content in contents.items()]


def parse_record(content: bytes, path: Path) -> tuple[str, list[tuple[str, int]]]:
    """The pipeline of a batch, and its letter files with their numbers of letters. Raises CorruptionError."""
    try:
        values = unpack(content, FORMAT)
        files = [(str(name), int(count)) for name, count in values["files"]]
        if bad := [name for name, _ in files if not _FILE_NAME.fullmatch(name)]:
            raise ValueError(f"it names a file {bad[0]!r}")
        return str(values["pipeline"]), files
    except (LookupError, TypeError, ValueError) as error:
        raise damaged(path, error) from error


def batch_name(pipeline: str, batch: int) -> str:
    """What the names of a batch's files begin with. In order of the batches of a pipeline."""
    return f"{batch:020d}-{pipeline}"


def damaged(path: Path, reason: object) -> CorruptionError:
    """The error of a file of the outbox."""
    return CorruptionError(f"not a readable {FORMAT} file: {reason}", where=str(path), hint=_RESTORE_HINT)
