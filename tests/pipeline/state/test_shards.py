"""Both plans give the same letters, through the whole batch without Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import brief
from pure import Placed, PureStream, control, placed, sifted_by
from worlds import around, event, position, removal, subscription

from roamcast.errors import CorruptionError
from roamcast.journal.records import Record
from roamcast.match.partitioners.cuts import Cuts
from roamcast.match.partitioners.hilbert import curve_keys_of_rows
from roamcast.pipeline.schemas import SUBSCRIPTIONS
from roamcast.pipeline.state.batch_state import Entry
from roamcast.pipeline.state.lookups import Lookups
from roamcast.pipeline.state.shards import Partition, Share, shares_for
from roamcast.pipeline.tasks.match import rows_with


def letters(entry: Entry) -> dict[str, list[dict[str, Any]]]:
    return {office: rows.to_pylist() for office, rows in entry.numbered.letters.items()}


def wishes(count: int) -> list[Record]:
    """Here and there, some with a term of their own, some for all the world."""
    boxes = [None if n % 7 == 0 else (n % 9 - 1, n % 5 - 1, n % 9 + 1.5, n % 5 + 1) for n in range(count)]
    terms = [((), ("fire",), ("fire", f"t{n % 3}"))[n % 3] for n in range(count)]
    return [subscription(f"s{n}", f"r{n % 4}", *each) for n, each in enumerate(zip(boxes, terms, strict=True))]


def happenings(first: int, count: int) -> list[Record]:
    return [event("cam", n, n % 9, n % 5, ("fire", f"t{n % 4}")) for n in range(first, first + count)]


def batches(*groups: Sequence[Record]) -> list[list[Placed]]:
    """Each group a batch, at dense offsets."""
    first, found = 1, []
    for records in groups:
        found.append(placed(records, first=first))
        first += len(records)
    return found


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_shares_give_the_letters_of_the_whole(tmp_path: Path, workers: int) -> None:
    """While subscriptions come and go and the load is balanced after every batch."""
    world = batches(
        wishes(30), happenings(1, 40), [removal("s3", "r3"), *happenings(41, 5), removal("s4", "r0")],
        [*wishes(4)[1:], *happenings(46, 40)], happenings(86, 20),
    )  # fmt: skip
    whole, shared = PureStream(tmp_path / "a"), PureStream(tmp_path / "b", workers=workers, balance=1, uneven=0)
    for rows in world:
        assert letters(shared.run(rows)) == letters(whole.run(rows))
    partition = shared.books.manifest.partition
    assert partition is not None
    assert len(partition.shares) == workers
    assert all(share.stack for share in partition.shares)


@pytest.mark.parametrize("plans", [(0, 2, 4, 0), (4, 1, 0, 3)])
def test_the_plan_may_change_with_every_start(tmp_path: Path, plans: Sequence[int]) -> None:
    """From replicated to shares of other numbers and back."""
    world = batches([*wishes(20), *happenings(1, 9)], happenings(10, 20), [removal("s1", "r1")], happenings(30, 20))
    whole, other = PureStream(tmp_path / "a"), PureStream(tmp_path / "b", balance=1, uneven=0)
    for workers, rows in zip(plans, world, strict=True):
        other.workers = workers
        other.restart()
        assert letters(other.run(rows)) == letters(whole.run(rows))


def test_a_restart_in_the_middle_of_a_rebalance_changes_nothing(tmp_path: Path) -> None:
    """Cut off when moves are planned; when they are made but not published; and when half of their files are gone."""
    world = batches(wishes(30), happenings(1, 60), happenings(61, 60), happenings(121, 60))
    whole, shared = PureStream(tmp_path / "a"), PureStream(tmp_path / "b", workers=3, balance=1, uneven=0)
    moved = 0
    for rows in world:
        planned = shared.books.manifest.partition and shared.books.manifest.partition.planned
        if planned:
            before = {path.name for path in shared.state.segments.iterdir()}
            shared.books.open(control(rows), shared.books.manifest.batch + 1)
            new = sorted({path.name for path in shared.state.segments.iterdir()} - before)
            moved += bool(new)
            for name in new[::2]:
                (shared.state.segments / name).unlink()
        shared.restart()
        assert letters(shared.run(rows)) == letters(whole.run(rows))
    assert moved


def test_a_share_that_nothing_moves_into_or_out_of_keeps_its_files(tmp_path: Path) -> None:
    """One subscription of many goes from the first worker to the second; the third has nothing to do with it."""
    shared = PureStream(tmp_path, workers=3)
    shared.run(placed(wishes(60)))
    before = shared.books.manifest.partition
    assert before is not None
    moving = next(n for n, owner in enumerate(before.cuts.owner) if owner == 0 and held_in(shared, n))
    owner = (*before.cuts.owner[:moving], 1, *before.cuts.owner[moving + 1 :])
    planned = before._replace(planned=before.cuts._replace(owner=owner))
    _, after = shared.state.arranger.arranged(shared.books.manifest.index, planned, 3, shared.books.with_handles)
    assert after is not None
    assert after.shares[2] == before.shares[2]
    assert after.shares[1] != before.shares[1]
    assert after.live == before.live
    assert (after.planned, after.cuts.owner) == (None, owner)


@pytest.mark.parametrize("is_hot", [False, True])
def test_only_an_uneven_load_is_evened(tmp_path: Path, is_hot: bool) -> None:
    """Events come for any subscriptions, or for those of the first worker alone."""
    shared = PureStream(tmp_path, workers=2, balance=1)
    shared.run(placed([subscription(f"s{n}", "ann", (n, 0, n + 0.5, 1), ()) for n in range(200)]))
    partition = shared.books.manifest.partition
    assert partition is not None
    rows = shared.state.layers.rows(partition.shares[0].stack)
    assert rows is not None
    wanted = np.random.default_rng(5).choice(rows.handle if is_hot else 200, 200).tolist()
    shared.run(placed([event("cam", n, x + 0.25, 0.5) for n, x in enumerate(wanted, 1)], first=201))
    partition = shared.books.manifest.partition
    assert partition is not None
    assert (partition.planned is not None) == is_hot


def test_the_first_wishes_are_shared_out_evenly(tmp_path: Path) -> None:
    """All of them lie in a small part of the world."""
    shared = PureStream(tmp_path, workers=2)
    shared.run(placed([subscription(f"s{n}", "ann", (n, 0, n + 0.5, 1)) for n in range(200)]))
    partition = shared.books.manifest.partition
    assert partition is not None
    assert [90 < sum(layer.live for layer in share.stack) < 110 for share in partition.shares] == [True, True]


def test_without_a_word_the_number_of_shares_stays() -> None:
    """However many cores Spark has by now; at first it is as many as these, and never more than there may be."""
    three = Partition((Share(),) * 3, Cuts.even(3, np.empty(0)), "secret")
    starts = ((None, 1), (None, 8), (None, 900), (three, 8))
    found = [shares_for("partitioned", 0, before, cores=cores, is_large=False) for before, cores in starts]
    assert found == [2, 8, 64, 3]
    assert shares_for("partitioned", 5, three, cores=8, is_large=False) == 5
    assert [shares_for("auto", 5, three, cores=8, is_large=is_large) for is_large in (False, True)] == [0, 5]
    assert shares_for("replicated", 5, three, cores=8, is_large=True) == 0


def test_a_process_opens_its_share_and_the_router_once(tmp_path: Path) -> None:
    """From batch to batch; tasks that need neither come in between. Files that are open need not be there."""
    shared = PureStream(tmp_path, workers=2)
    shared.run(placed(wishes(30)))
    rows = placed(happenings(1, 20), first=31)
    sieve = shared.books.open(control(rows), 1).sieve
    first, second = (sifted_by(sieve, rows), sifted_by(sieve, rows[:5]))
    for path in shared.state.segments.iterdir():
        path.unlink()
    assert sifted_by(sieve, rows) == first
    assert sifted_by(sieve, rows[:5]) == second


def held_in(stream: PureStream, stretch: int) -> bool:
    """Whether a subscription lies on this stretch of the curve."""
    partition = stream.books.manifest.partition
    assert partition is not None
    rows = [rows for share in partition.shares if (rows := stream.state.layers.rows(share.stack)) is not None]
    places = np.concatenate([curve_keys_of_rows(each) for each in rows])
    return bool((np.searchsorted(np.array(partition.cuts.at), places) == stretch).any())


records = st.one_of(
    st.builds(
        lambda n, box, terms: subscription(f"s{n}", f"r{n % 3}", box, terms),
        st.integers(0, 8),
        st.none() | st.tuples(*[st.integers(-3, 3)] * 2).map(lambda p: (p[0], p[1], p[0] + 2, p[1] + 2)),
        st.lists(st.sampled_from(["a", "b", "c"]), max_size=2),
    ),
    st.builds(lambda n: removal(f"s{n}", f"r{n % 3}"), st.integers(0, 8)),
    st.builds(lambda n: around(f"m{n}", f"r{n}", 2.0), st.integers(0, 2)),
    st.builds(lambda n, x: position(f"r{n}", x), st.integers(0, 2), st.integers(-5, 5)),
    st.builds(
        lambda source, seq, x, y, terms: event(source, seq, x, y, terms),
        st.sampled_from(["cam", "cam@elsewhere"]),
        st.integers(1, 30),
        st.integers(-4, 4),
        st.integers(-4, 4),
        st.lists(st.sampled_from(["a", "b", "c"]), max_size=3),
    ),
)


@given(st.lists(st.lists(records, min_size=1, max_size=12), min_size=1, max_size=6), st.sampled_from([1, 2, 4]))
@brief()
def test_any_story_has_the_same_letters_in_both_plans(story: list[list[Record]], workers: int) -> None:
    """Regions that move, subscriptions that come and go, guests, copies of events; restarts between all batches."""
    with tempfile.TemporaryDirectory() as folder:
        whole = PureStream(Path(folder) / "a")
        shared = PureStream(Path(folder) / "b", workers=workers, balance=2, uneven=0)
        for rows in batches(*story):
            shared.restart()
            assert letters(shared.run(rows)) == letters(whole.run(rows))


def test_a_match_that_the_table_does_not_know_is_damage(tmp_path: Path) -> None:
    """Rather than a letter to somebody else."""
    with pytest.raises(CorruptionError, match="does not have"):
        rows_with(np.array([7]), Lookups(tmp_path, SUBSCRIPTIONS.name, ()))
