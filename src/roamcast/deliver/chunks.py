"""What a mailbox knows besides its letters, cut into parts: of who writes to very many it fits no message.

It is taken as a list of items, in an order that depends on nothing but what is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from roamcast.deliver.mailbox import Mailbox
from roamcast.deliver.port import Contents
from roamcast.ranges import Ranges

__all__ = ["count_of", "joined", "part_of"]

_BYTES = 60  # of an item but its name, which quoting may double
_NOTHING = Ranges()


class _Item(NamedTuple):
    """Numbers `first` to `last` that were received of a sender, or have expired; or the last one sent to a receiver."""

    kind: str
    name: str
    first: int
    last: int


def part_of(contents: Contents, after: int, size: int) -> tuple[Contents, bool]:
    """What comes behind so many items, as much as `size` bytes hold but at least one item; and whether that is all."""
    items: list[_Item] = []
    total = 0
    for item in islice(_items(contents), after, None):
        total += _BYTES + 2 * len(item.name.encode())
        if items and total > size:
            return _part(contents, items), False
        items.append(item)
    return _part(contents, items), True


def count_of(contents: Contents) -> int:
    """How many items it has."""
    return sum(1 for _ in _items(contents))


def joined(contents: Contents, part: Contents) -> Contents:
    """All parts joined, from the first on, are what they were cut from. What a part does not name stays as it is."""
    return Contents(
        Mailbox(part.mailbox.next_place, _union(contents.mailbox.received, part.mailbox.received)),
        part.acknowledged,
        {**contents.sent, **part.sent},
        _union(contents.expired, part.expired),
    )


def _items(contents: Contents) -> Iterator[_Item]:
    for kind, numbers in (("received", contents.mailbox.received), ("expired", contents.expired)):
        for name in sorted(numbers):
            yield from (_Item(kind, name, *span) for span in numbers[name])
    for name in sorted(contents.sent):
        yield _Item("sent", name, contents.sent[name], contents.sent[name])


def _part(contents: Contents, items: Iterable[_Item]) -> Contents:
    spans: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for kind, name, first, last in items:
        spans.setdefault((kind, name), []).append((first, last))
    received, expired = (
        {name: Ranges(tuple(some)) for (kind, name), some in spans.items() if kind == wanted}
        for wanted in ("received", "expired")
    )
    sent = {name: last for (kind, name), ((_, last), *_) in spans.items() if kind == "sent"}
    return Contents(Mailbox(contents.mailbox.next_place, received), contents.acknowledged, sent, expired)


def _union(numbers: Mapping[str, Ranges], more: Mapping[str, Ranges]) -> dict[str, Ranges]:
    return {**numbers, **{name: numbers.get(name, _NOTHING).union(ranges) for name, ranges in more.items()}}
