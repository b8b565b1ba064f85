"""Intake: which events of a batch are new, whatever order they come in."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from pure import Placed, brief, placed
from worlds import event, removal, subscription

from roamcast.journal.records import EVENT, Record
from roamcast.pipeline.letters.dedupe import Intake, Source, take_in
from roamcast.ranges import Ranges


def take(rows: Sequence[Placed], seen: dict[Source, Ranges] | None = None) -> Intake:
    return take_in(brief(rows), seen or {})


def fresh(intake: Intake) -> list[tuple[str, int]]:
    """Where the events that count stand, in the order they have."""
    return list(zip(intake.fresh["node"].to_pylist(), intake.fresh["offset"].to_pylist(), strict=True))


def at(*offsets: int) -> list[tuple[str, int]]:
    return [("local", offset) for offset in offsets]


def seen(intake: Intake) -> dict[str, str]:
    return {source.name: ranges.to_text() for source, ranges in intake.seen.items()}


def test_a_copy_in_the_same_batch_is_dropped() -> None:
    """Of two records with the same source and number the first counts."""
    intake = take(placed([event("cam", 2), event("cam", 1), event("cam", 2), event("car", 2)]))
    assert (intake.duplicates, fresh(intake)) == (1, at(1, 2, 4))
    assert seen(intake) == {"cam": "1-2", "car": "2"}


def test_a_copy_of_an_earlier_batch_is_dropped() -> None:
    """What was seen before counts no more, and a source with nothing new is not written again."""
    before = {Source("local", "cam"): Ranges.from_text("1-3"), Source("local", "car"): Ranges.from_text("1")}
    intake = take(placed([event("cam", 3), event("cam", 5), event("car", 1)]), before)
    assert (intake.duplicates, fresh(intake), seen(intake)) == (2, at(2), {"cam": "1-3,5"})


def test_sources_of_two_nodes_are_two_sources() -> None:
    """Nodes give ids on their own: nobody can use up the numbers of a source that is registered elsewhere."""
    rows = [*placed([event("cam", 1)], "south", 4), *placed([event("cam", 1)], "north", 9)]
    intake = take(rows)
    assert fresh(intake) == [("north", 9), ("south", 4)]
    assert (intake.duplicates, set(intake.seen)) == (0, {Source("north", "cam"), Source("south", "cam")})


def test_copies_that_came_at_two_nodes_are_one() -> None:
    """Whichever node a source's event was taken in by, its number counts once; and again in later batches."""
    rows = [*placed([event("cam@north", 1)], "south", 4), *placed([event("cam", 1)], "north", 9)]
    intake = take(rows)
    assert (fresh(intake), intake.duplicates) == ([("north", 9)], 1)
    later = take(placed([event("cam@north", 1), event("cam@north", 2)], "west"), dict(intake.seen))
    assert (fresh(later), later.duplicates) == ([("west", 2)], 1)
    assert later.seen == {Source("north", "cam"): Ranges.from_text("1-2")}


def test_a_source_that_leaves_too_many_gaps_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or what was seen of it would grow with every event; copies of what it has sent are still known."""
    monkeypatch.setattr("roamcast.pipeline.letters.dedupe.MOST_GAPS", 2)
    before = {Source("local", "cam"): Ranges.from_text("1,3")}
    intake = take(placed([event("cam", 3), event("cam", 5), event("cam", 7), event("car", 9)]), before)
    assert [(item.offset, "gaps" in item.reason) for item in intake.set_aside] == [(2, True), (3, True)]
    assert (intake.duplicates, fresh(intake), seen(intake)) == (1, at(4), {"car": "9"})


def test_a_hole_in_the_numbers_holds_nothing_back() -> None:
    """Any number is accepted, in any order, very high ones among them."""
    intake = take(placed([event("cam", 900), event("cam", 2), event("cam", 10**15)]))
    assert (intake.duplicates, seen(intake)) == (0, {"cam": f"2,900,{10**15}"})


POISON = {
    "without source": event("cam", 1)._replace(entity=None),
    "without number": event("cam", 1)._replace(seq=None),
    "with number 0": event("cam", 0),
    "with a negative number": event("cam", -1),
    "without id": event("cam", 1)._replace(id=None),
    "without time": event("cam", 1)._replace(time=None),
    "at a time before all dates": event("cam", 1)._replace(time=-62_135_596_800_000_001),
    "at a time after all dates": event("cam", 1)._replace(time=253_402_300_800_000_000),
    "without point": event("cam", 1)._replace(x=None, y=None),
    "at NaN": event("cam", 1, x=math.nan),
    "at infinity": event("cam", 1, y=-math.inf),
    "empty": Record(EVENT),
}


@pytest.mark.parametrize("poison", POISON)
def test_what_cannot_be_processed_is_set_aside(poison: str) -> None:
    """It is named with its place and a reason, and the rest of the batch goes on as if it were not there."""
    intake = take(placed([event("cam", 6), POISON[poison], event("cam", 7)], first=5))
    ((node, offset, reason),) = intake.set_aside
    assert (node, offset) == ("local", 6)
    assert reason
    assert (intake.duplicates, fresh(intake), seen(intake)) == (0, at(5, 7), {"cam": "6-7"})


@pytest.mark.parametrize("time", [-62_135_596_800_000_000, 253_402_300_799_999_999])
def test_every_time_that_has_a_date_is_taken(time: int) -> None:
    """From the first moment of the year 1 to the last of the year 9999."""
    assert fresh(take(placed([event("cam", 1)._replace(time=time)]))) == at(1)


def test_events_set_aside_are_not_matched() -> None:
    """An event that was set aside does not count, as little as the copies."""
    assert fresh(take(placed([event("cam", 0), event("cam", 1), event("cam", 1)]))) == at(2)


def test_a_number_that_was_set_aside_is_not_seen() -> None:
    """A broken record does not make a good one with the same number a copy."""
    intake = take(placed([event("cam", 1)._replace(x=math.nan), event("cam", 1)]))
    assert (intake.duplicates, fresh(intake)) == (0, at(2))


def test_control_records_are_no_events() -> None:
    """Nothing is told of them here, and nothing of them is set aside."""
    rows = placed([subscription("s1", "ann"), event("cam", 1), removal("s1", "ann"), Record("teleport")])
    intake = take(rows)
    assert (fresh(intake), intake.set_aside) == (at(2), [])


def test_a_batch_without_events_changes_nothing() -> None:
    """Nothing in, nothing out."""
    intake = take([])
    assert (intake.duplicates, fresh(intake), seen(intake), intake.set_aside) == (0, [], {}, [])


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_rows_does_not_matter(seed: int) -> None:
    """Spark may hand the events over in any order."""
    mixed = [
        event("cam", 1), event("cam", 2), event("cam", 1), event("cam", 0), event("car", 1), event("cam", 2),
        event("car", 2)._replace(id=None), event("car", 3),
    ]  # fmt: skip
    rows = [*placed(mixed, "south", 3), *placed(mixed, "north", 8)]
    shuffled = random.Random(seed).sample(rows, len(rows))
    expected, found = take(rows), take(shuffled)
    assert found.fresh.equals(expected.fresh)
    assert (found.duplicates, found.seen, found.set_aside) == (expected.duplicates, expected.seen, expected.set_aside)
