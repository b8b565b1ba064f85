"""Cuts the bookkeeping of a mailbox into chunks, because that of a very busy mailbox does not fit one message.

Bookkeeping is treated as a list of items in an order that depends only on its content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from roamcast.deliver.port import Bookkeeping, Mailbox
from roamcast.ranges import Ranges

__all__ = ["count_items", "cut_chunk", "merge_chunk"]

_BYTES = 60  # of an item without its name; quoting may double the name
_NO_NUMBERS = Ranges()


class _Item(NamedTuple):
    """Numbers `first` to `last` received from a sender, or expired; or the last number sent to a receiver."""

    kind: str
    name: str
    first: int
    last: int


def cut_chunk(bookkeeping: Bookkeeping, after: int, size: int) -> tuple[Bookkeeping, bool]:
    """The items after the first `after`, at most `size` bytes but at least one item; and whether these are the last."""
    items: list[_Item] = []
    total = 0
    for item in islice(_items(bookkeeping), after, None):
        total += _BYTES + 2 * len(item.name.encode())
        if items and total > size:
            return _chunk(bookkeeping, items), False
        items.append(item)
    return _chunk(bookkeeping, items), True


def count_items(bookkeeping: Bookkeeping) -> int:
    return sum(1 for _ in _items(bookkeeping))


def merge_chunk(bookkeeping: Bookkeeping, chunk: Bookkeeping) -> Bookkeeping:
    """Add a chunk. Merging all chunks in order restores the bookkeeping they were cut from."""
    return Bookkeeping(
        Mailbox(chunk.mailbox.next_offset, _union(bookkeeping.mailbox.received, chunk.mailbox.received)),
        chunk.acknowledged,
        {**bookkeeping.sent, **chunk.sent},
        _union(bookkeeping.expired, chunk.expired),
    )


def _items(bookkeeping: Bookkeeping) -> Iterator[_Item]:
    for kind, numbers in (("received", bookkeeping.mailbox.received), ("expired", bookkeeping.expired)):
        for name in sorted(numbers):
            yield from (_Item(kind, name, *span) for span in numbers[name])
    for name in sorted(bookkeeping.sent):
        yield _Item("sent", name, bookkeeping.sent[name], bookkeeping.sent[name])


def _chunk(bookkeeping: Bookkeeping, items: Iterable[_Item]) -> Bookkeeping:
    spans: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for kind, name, first, last in items:
        spans.setdefault((kind, name), []).append((first, last))
    received, expired = (
        {name: Ranges(tuple(of_name)) for (kind, name), of_name in spans.items() if kind == chosen}
        for chosen in ("received", "expired")
    )
    sent = {name: last for (kind, name), ((_, last), *_) in spans.items() if kind == "sent"}
    mailbox = Mailbox(bookkeeping.mailbox.next_offset, received)
    return Bookkeeping(mailbox, bookkeeping.acknowledged, sent, expired)


def _union(numbers: Mapping[str, Ranges], more: Mapping[str, Ranges]) -> dict[str, Ranges]:
    return {**numbers, **{name: numbers.get(name, _NO_NUMBERS).union(ranges) for name, ranges in more.items()}}
