"""Bookkeeping in chunks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roamcast.deliver.chunks import count_items, cut_chunk, merge_chunk
from roamcast.deliver.port import Bookkeeping, Mailbox
from roamcast.ranges import Ranges

names = st.text(max_size=5)
numbers = st.dictionaries(
    names, st.sets(st.integers(1, 50), min_size=1).map(lambda some: Ranges().merge(sorted(some))[0]), max_size=4
)
bookkeeping = st.builds(
    Bookkeeping,
    st.builds(Mailbox, st.integers(1, 99), numbers),
    st.integers(0, 99),
    st.dictionaries(names, st.integers(1, 99), max_size=4),
    numbers,
)


@given(bookkeeping, st.integers(0, 1_000))
def test_merged_chunks_restore_the_bookkeeping(whole: Bookkeeping, size: int) -> None:
    """Each chunk starts where the last one ended and is not empty, unless nothing is left."""
    merged, after, last = Bookkeeping(), 0, False
    while not last:
        chunk, last = cut_chunk(whole, after, size)
        assert count_items(chunk) > 0 or (last and after == count_items(whole))
        merged, after = merge_chunk(merged, chunk), after + count_items(chunk)
    assert merged == whole
    assert after == count_items(whole)


@given(bookkeeping)
def test_small_bookkeeping_is_one_chunk(whole: Bookkeeping) -> None:
    assert cut_chunk(whole, 0, 1_000_000) == (whole, True)


@given(bookkeeping, st.integers(100, 1_000))
def test_chunk_does_not_exceed_its_size(whole: Bookkeeping, size: int) -> None:
    chunk, _ = cut_chunk(whole, 0, size)
    items = [*chunk.mailbox.received.items(), *chunk.expired.items()]
    written = sum(2 * len(name.encode()) + len(ranges.to_text()) for name, ranges in items)
    written += sum(2 * len(name.encode()) + len(str(number)) for name, number in chunk.sent.items())
    assert written <= size
