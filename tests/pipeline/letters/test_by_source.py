"""The first step of letters: which events of a batch are new, in whatever order they come, and where they go."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from batches import Placed, placed, unmatched
from worlds import event, removal, subscription

from roamcast.journal.records import EVENT, Record
from roamcast.pipeline.letters.by_source import DedupedEvents, dedupe_events
from roamcast.pipeline.letters.context import SourceKey
from roamcast.ranges import Ranges


def dedupe(rows: Sequence[Placed], seen: dict[SourceKey, Ranges] | None = None) -> DedupedEvents:
    return dedupe_events(unmatched(rows), seen or {})


def fresh(deduped: DedupedEvents) -> list[tuple[str, int]]:
    """(node, offset) of the events that count, in their order."""
    return list(zip(deduped.fresh["node"].to_pylist(), deduped.fresh["offset"].to_pylist(), strict=True))


def at(*offsets: int) -> list[tuple[str, int]]:
    return [("local", offset) for offset in offsets]


def seen(deduped: DedupedEvents) -> dict[str, str]:
    return {source.name: ranges.to_text() for source, ranges in deduped.seen.items()}


def test_a_duplicate_in_the_same_batch_is_dropped() -> None:
    """Of two events with the same source and sequence number the first counts."""
    deduped = dedupe(placed([event("cam", 2), event("cam", 1), event("cam", 2), event("car", 2)]))
    assert (deduped.duplicates, fresh(deduped)) == (1, at(1, 2, 4))
    assert seen(deduped) == {"cam": "1-2", "car": "2"}


def test_a_duplicate_of_an_earlier_batch_is_dropped() -> None:
    """A source without new numbers is not written again."""
    before = {SourceKey("local", "cam"): Ranges.from_text("1-3"), SourceKey("local", "car"): Ranges.from_text("1")}
    deduped = dedupe(placed([event("cam", 3), event("cam", 5), event("car", 1)]), before)
    assert (deduped.duplicates, fresh(deduped), seen(deduped)) == (2, at(2), {"cam": "1-3,5"})


def test_sources_of_two_nodes_are_two_sources() -> None:
    """Nodes assign ids independently, so nobody can use the numbers of a source of another node."""
    rows = [*placed([event("cam", 1)], "south", 4), *placed([event("cam", 1)], "north", 9)]
    deduped = dedupe(rows)
    assert fresh(deduped) == [("north", 9), ("south", 4)]
    assert (deduped.duplicates, set(deduped.seen)) == (0, {SourceKey("north", "cam"), SourceKey("south", "cam")})


def test_duplicates_at_two_nodes_are_one_event() -> None:
    """Whichever node accepts an event, its number counts once, also in later batches."""
    rows = [*placed([event("cam@north", 1)], "south", 4), *placed([event("cam", 1)], "north", 9)]
    deduped = dedupe(rows)
    assert (fresh(deduped), deduped.duplicates) == ([("north", 9)], 1)
    later = dedupe(placed([event("cam@north", 1), event("cam@north", 2)], "west"), dict(deduped.seen))
    assert (fresh(later), later.duplicates) == ([("west", 2)], 1)
    assert later.seen == {SourceKey("north", "cam"): Ranges.from_text("1-2")}


def test_events_with_too_many_gaps_become_dead_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranges of seen numbers are limited. Duplicates of earlier events are still recognised."""
    monkeypatch.setattr("roamcast.pipeline.letters.by_source.MAX_GAPS", 2)
    before = {SourceKey("local", "cam"): Ranges.from_text("1,3")}
    deduped = dedupe(placed([event("cam", 3), event("cam", 5), event("cam", 7), event("car", 9)]), before)
    assert [(item.offset, "gaps" in item.reason) for item in deduped.dead_letters] == [(2, True), (3, True)]
    assert (deduped.duplicates, fresh(deduped), seen(deduped)) == (1, at(4), {"car": "9"})


def test_gaps_do_not_delay_events() -> None:
    """Numbers are accepted in any order, also very high ones."""
    deduped = dedupe(placed([event("cam", 900), event("cam", 2), event("cam", 10**15)]))
    assert (deduped.duplicates, seen(deduped)) == (0, {"cam": f"2,900,{10**15}"})


POISON = {
    "without source": event("cam", 1)._replace(entity=None),
    "without number": event("cam", 1)._replace(seq=None),
    "with number 0": event("cam", 0),
    "with a negative number": event("cam", -1),
    "without id": event("cam", 1)._replace(id=None),
    "without time": event("cam", 1)._replace(time=None),
    "at a time before the year 1": event("cam", 1)._replace(time=-62_135_596_800_000_001),
    "at a time after the year 9999": event("cam", 1)._replace(time=253_402_300_800_000_000),
    "without point": event("cam", 1)._replace(x=None, y=None),
    "at NaN": event("cam", 1, x=math.nan),
    "at infinity": event("cam", 1, y=-math.inf),
    "empty": Record(EVENT),
}


@pytest.mark.parametrize("poison", POISON)
def test_an_incomplete_event_becomes_a_dead_letter(poison: str) -> None:
    """It is reported with offset and reason, and the rest of the batch is processed."""
    deduped = dedupe(placed([event("cam", 6), POISON[poison], event("cam", 7)], first=5))
    ((node, offset, reason),) = deduped.dead_letters
    assert (node, offset) == ("local", 6)
    assert reason
    assert (deduped.duplicates, fresh(deduped), seen(deduped)) == (0, at(5, 7), {"cam": "6-7"})


@pytest.mark.parametrize("time", [-62_135_596_800_000_000, 253_402_300_799_999_999])
def test_times_of_the_years_1_to_9999_are_accepted(time: int) -> None:
    """Both limits included."""
    assert fresh(dedupe(placed([event("cam", 1)._replace(time=time)]))) == at(1)


def test_dead_letters_and_duplicates_are_not_fresh() -> None:
    """Only one event of three is left."""
    assert fresh(dedupe(placed([event("cam", 0), event("cam", 1), event("cam", 1)]))) == at(2)


def test_the_number_of_a_dead_letter_is_not_seen() -> None:
    """A good event with the same number is not a duplicate."""
    deduped = dedupe(placed([event("cam", 1)._replace(x=math.nan), event("cam", 1)]))
    assert (deduped.duplicates, fresh(deduped)) == (0, at(2))


def test_control_records_are_not_events() -> None:
    """They are ignored here."""
    rows = placed([subscription("s1", "ann"), event("cam", 1), removal("s1", "ann"), Record("teleport")])
    deduped = dedupe(rows)
    assert (fresh(deduped), deduped.dead_letters) == (at(2), [])


def test_a_batch_without_events_changes_nothing() -> None:
    """The result is empty."""
    deduped = dedupe([])
    assert (deduped.duplicates, fresh(deduped), seen(deduped), deduped.dead_letters) == (0, [], {}, [])


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_rows_does_not_matter(seed: int) -> None:
    """Spark may return the events in any order."""
    mixed = [
        event("cam", 1), event("cam", 2), event("cam", 1), event("cam", 0), event("car", 1), event("cam", 2),
        event("car", 2)._replace(id=None), event("car", 3),
    ]  # fmt: skip
    rows = [*placed(mixed, "south", 3), *placed(mixed, "north", 8)]
    shuffled = random.Random(seed).sample(rows, len(rows))
    expected, result = dedupe(rows), dedupe(shuffled)
    assert result.fresh.equals(expected.fresh)
    assert (result.duplicates, result.seen, result.dead_letters) == (
        expected.duplicates,
        expected.seen,
        expected.dead_letters,
    )
