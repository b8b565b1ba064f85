"""What a mailbox knows, in parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roamcast.deliver.chunks import count_items, cut_chunk, merge_chunk
from roamcast.deliver.mailbox import Mailbox
from roamcast.deliver.port import Bookkeeping
from roamcast.ranges import Ranges

names = st.text(max_size=5)
numbers = st.dictionaries(
    names, st.sets(st.integers(1, 50), min_size=1).map(lambda some: Ranges().merge(sorted(some))[0]), max_size=4
)
contents = st.builds(
    Bookkeeping,
    st.builds(Mailbox, st.integers(1, 99), numbers),
    st.integers(0, 99),
    st.dictionaries(names, st.integers(1, 99), max_size=4),
    numbers,
)


@given(contents, st.integers(0, 1_000))
def test_all_parts_joined_are_the_whole(whole: Bookkeeping, size: int) -> None:
    """Whatever they hold: each begins where the one before ended, and brings something unless nothing is left."""
    found, after, last = Bookkeeping(), 0, False
    while not last:
        part, last = cut_chunk(whole, after, size)
        assert count_items(part) > 0 or (last and after == count_items(whole))
        found, after = merge_chunk(found, part), after + count_items(part)
    assert found == whole
    assert after == count_items(whole)


@given(contents)
def test_what_fits_is_one_part(whole: Bookkeeping) -> None:
    """As nearly everything does."""
    assert cut_chunk(whole, 0, 1_000_000) == (whole, True)


@given(contents, st.integers(100, 1_000))
def test_a_part_is_not_larger_than_it_may_be(whole: Bookkeeping, size: int) -> None:
    """Names and numbers written out, with what stands between them, fit the size that was given."""
    part, _ = cut_chunk(whole, 0, size)
    items = [*part.mailbox.received.items(), *part.expired.items()]
    written = sum(2 * len(name.encode()) + len(ranges.to_text()) for name, ranges in items)
    written += sum(2 * len(name.encode()) + len(str(number)) for name, number in part.sent.items())
    assert written <= size
