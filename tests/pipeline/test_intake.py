"""Intake: what a batch's records mean, whatever order they come in."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from pure import Placed, brief, placed
from worlds import event, removal, subscription

from roamcast.deliver.ranges import Ranges
from roamcast.journal.records import EVENT, REMOVAL, SUBSCRIPTION, Record
from roamcast.pipeline.intake import Intake, Source, take_in


def take(
    rows: Sequence[Placed],
    seen: dict[Source, Ranges] | None = None,
    live: Sequence[dict[str, Any]] = (),
    batch: int = 7,
) -> Intake:
    return take_in(brief(rows), batch, seen or {}, lambda ids: [row for row in live if row["id"] in ids])


def dropped(intake: Intake) -> dict[str, list[int]]:
    return {node: positions.tolist() for node, positions in intake.dropped.items()}


def seen(intake: Intake) -> dict[str, str]:
    return {source.name: ranges.to_text() for source, ranges in intake.seen.items()}


def lives(intake: Intake) -> list[tuple[str, str, int, int | None, int | None]]:
    """(node, id, since, until, removed_in) of the rows that were written."""
    rows = intake.subscriptions.to_pylist()
    return [(row["node"], row["id"], row["since"], row["until"], row["removed_in"]) for row in rows]


def live(*records: Record, node: str = "local") -> list[dict[str, Any]]:
    """The rows of subscriptions that an earlier batch made."""
    return take(placed(records, node), batch=0).subscriptions.to_pylist()


def test_a_copy_in_the_same_batch_is_dropped() -> None:
    """Of two records with the same source and number the first counts."""
    intake = take(placed([event("cam", 2), event("cam", 1), event("cam", 2), event("car", 2)]))
    assert (intake.events, intake.duplicates, dropped(intake)) == (4, 1, {"local": [3]})
    assert seen(intake) == {"cam": "1-2", "car": "2"}


def test_a_copy_of_an_earlier_batch_is_dropped() -> None:
    """What was seen before counts no more, and a source with nothing new is not written again."""
    before = {Source("local", "cam"): Ranges.from_text("1-3"), Source("local", "car"): Ranges.from_text("1")}
    intake = take(placed([event("cam", 3), event("cam", 5), event("car", 1)]), before)
    assert (intake.duplicates, dropped(intake), seen(intake)) == (2, {"local": [1, 3]}, {"cam": "1-3,5"})


def test_sources_of_two_nodes_are_two_sources() -> None:
    """Nodes give ids on their own: nobody can use up the numbers of a source that is registered elsewhere."""
    rows = [*placed([event("cam", 1)], "south", 4), *placed([event("cam", 1)], "north", 9)]
    intake = take(rows)
    assert (dropped(intake), set(intake.seen)) == ({}, {Source("north", "cam"), Source("south", "cam")})


def test_a_source_that_leaves_too_many_gaps_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or what was seen of it would grow with every event; copies of what it has sent are still known."""
    monkeypatch.setattr("roamcast.pipeline.intake.MOST_GAPS", 2)
    before = {Source("local", "cam"): Ranges.from_text("1,3")}
    intake = take(placed([event("cam", 3), event("cam", 5), event("cam", 7), event("car", 9)]), before)
    assert [(item.position, "gaps" in item.reason) for item in intake.set_aside] == [(2, True), (3, True)]
    assert (intake.events, intake.duplicates, dropped(intake)) == (2, 1, {"local": [1, 2, 3]})
    assert seen(intake) == {"car": "9"}


def test_a_hole_in_the_numbers_holds_nothing_back() -> None:
    """Any number is accepted, in any order, very high ones among them."""
    intake = take(placed([event("cam", 900), event("cam", 2), event("cam", 10**15)]))
    assert (intake.duplicates, seen(intake)) == (0, {"cam": f"2,900,{10**15}"})


GOOD_BODY = {"version": 1, "box": [0, 0, 1, 1], "terms": ["fire"]}


def broken(**changed: Any) -> Record:
    """A subscription whose body has other parts."""
    return Record(SUBSCRIPTION, "ann", id="s1", body=orjson.dumps({**GOOD_BODY, **changed}).decode())


def without(part: str) -> Record:
    body = {name: value for name, value in GOOD_BODY.items() if name != part}
    return Record(SUBSCRIPTION, "ann", id="s1", body=orjson.dumps(body).decode())


POISON = {
    "event without source": event("cam", 1)._replace(entity=None),
    "event without number": event("cam", 1)._replace(seq=None),
    "event with number 0": event("cam", 0),
    "event with a negative number": event("cam", -1),
    "event without id": event("cam", 1)._replace(id=None),
    "event without time": event("cam", 1)._replace(time=None),
    "event without point": event("cam", 1)._replace(x=None, y=None),
    "event at NaN": event("cam", 1, x=math.nan),
    "event at infinity": event("cam", 1, y=-math.inf),
    "empty event": Record(EVENT),
    "unknown kind": Record("teleport", "cam", 1, "t1"),
    "subscription without id": subscription("s1", "ann")._replace(id=None),
    "subscription with an empty id": subscription("", "ann"),
    "subscription without subscriber": subscription("s1", "ann")._replace(entity=None),
    "removal without id": Record(REMOVAL, "ann"),
    "removal without subscriber": removal("s1", "ann")._replace(entity=None),
    "no body": Record(SUBSCRIPTION, "ann", id="s1"),
    "empty body": Record(SUBSCRIPTION, "ann", id="s1", body=""),
    "body that is no JSON": Record(SUBSCRIPTION, "ann", id="s1", body="{box"),
    "body that is a list": Record(SUBSCRIPTION, "ann", id="s1", body="[1]"),
    "body that is a text": Record(SUBSCRIPTION, "ann", id="s1", body='"version"'),
    "body that is null": Record(SUBSCRIPTION, "ann", id="s1", body="null"),
    "body with NaN": Record(SUBSCRIPTION, "ann", id="s1", body='{"version":1,"box":[0,0,NaN,1],"terms":[]}'),
    "body without version": without("version"),
    "body without box": without("box"),
    "body without terms": without("terms"),
    "another version": broken(version=2),
    "version as a text": broken(version="1"),
    "reversed box": broken(box=[0, 1, 1, 0]),
    "box of three": broken(box=[0, 0, 1]),
    "box of five": broken(box=[0, 0, 1, 1, 1]),
    "box as a text": broken(box="0011"),
    "box of texts": broken(box=["0", "0", "1", "1"]),
    "box of truths": broken(box=[False, False, True, True]),
    "box with null": broken(box=[0, 0, None, 1]),
    "box by name": broken(box={"0": 1, "1": 1, "2": 1, "3": 1}),
    "box as a number": broken(box=7),
    "terms as a text": broken(terms="fire"),
    "terms that are numbers": broken(terms=[1, 2]),
    "terms with null": broken(terms=["fire", None]),
    "terms by name": broken(terms={"fire": True}),
}


@pytest.mark.parametrize("poison", POISON)
def test_what_cannot_be_processed_is_set_aside(poison: str) -> None:
    """It is named with its place and a reason, and the rest of the batch goes on as if it were not there."""
    good = [subscription("s2", "ann"), event("cam", 7), removal("s3", "ann")]
    rows = placed([good[0], POISON[poison], *good[1:]], first=5)
    intake = take(rows, live=live(subscription("s3", "ann")))
    ((node, position, reason),) = intake.set_aside
    assert (node, position) == ("local", 6)
    assert reason
    assert (intake.events, intake.duplicates, intake.growth, seen(intake)) == (1, 0, 0, {"cam": "7"})
    assert lives(intake) == [("local", "s2", 5, None, None), ("local", "s3", 1, 8, 7)]


def test_events_set_aside_are_not_matched() -> None:
    """An event that was set aside is dropped together with the copies."""
    intake = take(placed([event("cam", 0), event("cam", 1), event("cam", 1)]))
    assert dropped(intake) == {"local": [1, 3]}


def test_a_number_that_was_set_aside_is_not_seen() -> None:
    """A broken record does not make a good one with the same number a copy."""
    intake = take(placed([event("cam", 1)._replace(x=math.nan), event("cam", 1)]))
    assert (intake.duplicates, dropped(intake)) == (0, {"local": [1]})


def test_a_subscription_begins_at_its_place() -> None:
    """Its row carries where it counts from and what it asks for, terms sorted and each once."""
    (row,) = live(subscription("s1", "ann", (0, -1, 2, 1), ("smoke", "fire", "smoke")))
    assert row == {
        "node": "local", "since": 1, "id": "s1", "subscriber": "ann", "min_x": 0.0, "min_y": -1.0, "max_x": 2.0,
        "max_y": 1.0, "terms": ["fire", "smoke"], "until": None, "removed_in": None,
    }  # fmt: skip


def test_no_box_is_the_whole_plane() -> None:
    """Without a box every point is inside."""
    (row,) = live(subscription("s1", "ann", None))
    assert [row[side] for side in ("min_x", "min_y", "max_x", "max_y")] == [-math.inf, -math.inf, math.inf, math.inf]


def test_a_box_across_the_antimeridian_is_a_box() -> None:
    """min_x may be above max_x."""
    (row,) = live(subscription("s1", "ann", (170, 0, -170, 1)))
    assert (row["min_x"], row["max_x"]) == (170.0, -170.0)


@pytest.mark.parametrize("times", [1, 2])
def test_making_the_same_again_changes_nothing(times: int) -> None:
    """A subscription that is live with the same content keeps its place."""
    again = [subscription("s1", "ann", (-1.0, -1.0, 1.0, 1.0), ("b", "a"))] * times
    intake = take(placed(again, first=5), live=live(subscription("s1", "ann", (-1, -1, 1, 1), ("a", "b"))))
    assert (lives(intake), intake.growth) == ([], 0)


@pytest.mark.parametrize(
    "other", [subscription("s1", "bob"), subscription("s1", "ann", None), subscription("s1", "ann", terms=("ice",))]
)
def test_making_it_with_other_content_replaces_it(other: Record) -> None:
    """The earlier row ends where the new one begins."""
    intake = take(placed([other], first=5), live=live(subscription("s1", "ann")))
    assert lives(intake) == [("local", "s1", 1, 5, 7), ("local", "s1", 5, None, None)]
    assert intake.growth == 0


def test_a_removal_ends_it() -> None:
    """The row says at which position and in which batch."""
    intake = take(placed([removal("s1", "ann")], first=5), live=live(subscription("s1", "ann")))
    assert (lives(intake), intake.growth) == ([("local", "s1", 1, 5, 7)], -1)


def test_removing_what_is_not_there_changes_nothing() -> None:
    """A removal may come twice, or for an id that never was."""
    rows = placed([removal("s1", "ann"), removal("s1", "ann"), removal("s9", "ann")], first=5)
    intake = take(rows, live=live(subscription("s1", "ann")))
    assert (len(lives(intake)), intake.growth, intake.set_aside) == (1, -1, [])


def test_removed_and_made_again_is_two_rows() -> None:
    """Within one batch each of its lives has its own beginning and end."""
    again = [removal("s1", "ann"), subscription("s1", "ann"), removal("s1", "ann"), subscription("s1", "ann")]
    intake = take(placed(again, first=5), live=live(subscription("s1", "ann")))
    assert lives(intake) == [
        ("local", "s1", 1, 5, 7),
        ("local", "s1", 6, 7, 7),
        ("local", "s1", 8, None, None),
    ]
    assert intake.growth == 0


def test_made_and_removed_in_one_batch_is_one_ended_row() -> None:
    """It counts for the events between the two records, and nothing is live afterwards."""
    intake = take(placed([subscription("s1", "ann"), event("cam", 1), removal("s1", "ann")]))
    assert (lives(intake), intake.growth) == ([("local", "s1", 1, 3, 7)], 0)


def test_nodes_give_ids_on_their_own() -> None:
    """The same id at two nodes names two subscriptions: neither replaces nor removes the other."""
    north = live(subscription("s1", "ann"), node="north")
    made = take(placed([subscription("s1", "bob")], "south", 3), live=north)
    assert (lives(made), made.growth) == ([("south", "s1", 3, None, None)], 1)
    removed = take(placed([removal("s1", "ann")], "south", 3), live=north)
    assert (lives(removed), removed.growth) == ([], 0)


def test_a_batch_without_records_changes_nothing() -> None:
    """Nothing in, nothing out."""
    intake = take([])
    assert (intake.events, intake.duplicates, dropped(intake), seen(intake), lives(intake)) == (0, 0, {}, {}, [])


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_rows_does_not_matter(seed: int) -> None:
    """Spark may hand the records over in any order."""
    mixed = [
        subscription("s1", "ann"), event("cam", 1), event("cam", 2), removal("s1", "ann"), event("cam", 1),
        subscription("s1", "bob"), event("cam", 0), subscription("s2", "ann"), Record("teleport"), event("car", 1),
    ]  # fmt: skip
    rows = [*placed(mixed, "south", 3), *placed(mixed, "north", 8)]
    shuffled = random.Random(seed).sample(rows, len(rows))
    expected, found = take(rows), take(shuffled)
    assert (found.events, found.duplicates, dropped(found), seen(found), found.growth, found.set_aside) == (
        expected.events, expected.duplicates, dropped(expected), seen(expected), expected.growth, expected.set_aside,
    )  # fmt: skip
    assert found.subscriptions.equals(expected.subscriptions)
