"""Journals on another host. The host that has them answers requests; `RemoteJournal` reads records with such requests.

<node>/<after>-<through>      the segments of a range of offsets, or why there are none; JSON
<node>/<name of a segment>    its content

How requests and answers travel is left to the caller. Segments are sent as they are on disk: they carry checksums.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import orjson
import pyarrow as pa

from roamcast.errors import CorruptionError, RoamcastError
from roamcast.journal.reader import JournalFolder, is_node_name, journal_root
from roamcast.journal.records import Segment, read

__all__ = ["JournalServer", "RemoteJournal"]

_RANGE: Final = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")


class JournalServer:
    """Answers requests for the journals of a data folder. Any thread may call."""

    def __init__(self, data: Path) -> None:
        self._root = journal_root(data)

    def answer(self, request: str) -> bytes | None:
        """The content that was requested; None if there is no such thing. Raises OSError if it is unreadable."""
        node, _, name = request.partition("/")
        if not is_node_name(node):
            return None
        folder = JournalFolder(self._root, node)
        if offsets := _RANGE.fullmatch(name):
            return _list_segments(folder, int(offsets[1]), int(offsets[2]))
        segment = Segment.from_name(folder.path, name)
        try:
            return segment.path.read_bytes() if segment else None
        except FileNotFoundError:
            return None


class RemoteJournal:
    """A RecordReader. `request` returns the answer of a JournalServer; what it raises is passed on."""

    def __init__(self, request: Callable[[str], bytes]) -> None:
        self._request = request

    def read(self, node: str, after: int, through: int) -> Iterator[pa.RecordBatch]:
        answer = orjson.loads(self._request(f"{node}/{after}-{through}"))
        if "error" in answer:
            raise CorruptionError(answer["error"], where=f"journal/{node}", hint=answer["hint"])
        folder = Path("journal") / node
        segments = (Segment.at(folder, first, last) for first, last in answer["segments"])
        yield from read(segments, after, through, load=lambda segment: self._request(f"{node}/{segment.path.name}"))


def _list_segments(folder: JournalFolder, after: int, through: int) -> bytes:
    try:
        segments = folder.segments_between(after, through)
    except RoamcastError as error:
        return orjson.dumps({"error": error.message, "hint": error.hint})
    return orjson.dumps({"segments": [[segment.first, segment.last] for segment in segments]})
