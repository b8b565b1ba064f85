"""Notes that spread in a community: each is passed on once, and a node that comes back gets those that last."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final

from roamcast.collect.protocol.messages import Bid, Call, Grant, Have, KeeperQuery, Kept, NewHead, Note, Path, Status

__all__ = ["Notes", "key_of"]

_MOST: Final = 4096


def key_of(note: Note) -> tuple[Hashable, int]:
    """What a note is about, and its version: a newer one replaces it."""
    match note:
        case Path(mule, version) | Have(mule, version):
            return (type(note), mule), version
        case Status(node, version):
            return (Status, node), version
        case Call(node, term) | Bid(node, term):
            return (type(note), node), term
        case NewHead(node, term):
            return NewHead, (term << 32) + node
        case KeeperQuery(node, mule, number) | Grant(node, mule, number):
            return (type(note), node, mule), number
        case Kept(event):
            return event, 0


class Notes:
    """The newest note of each key; the oldest keys are forgotten."""

    def __init__(self) -> None:
        self._newest: dict[Hashable, tuple[int, Note]] = {}

    def add(self, note: Note) -> bool:
        """Returns whether it is news."""
        key, version = key_of(note)
        if key in self._newest and self._newest[key][0] >= version:
            return False
        self._newest.pop(key, None)
        self._newest[key] = version, note
        if len(self._newest) > _MOST:
            del self._newest[next(iter(self._newest))]
        return True

    def lasting(self, now: int) -> Iterator[Note]:
        """What a neighbour needs to know when a contact begins."""
        for _, note in self._newest.values():
            if isinstance(note, Status | Path | Have | NewHead) or (isinstance(note, Kept) and note.expires > now):
                yield note
