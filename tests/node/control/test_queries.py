"""Queries as a node reads them, the entities, and the clock."""

from __future__ import annotations

import pytest

from roamcast.errors import CorruptionError, NotFoundError
from roamcast.lacl import parse, to_text
from roamcast.model import Box, Position, Subscription
from roamcast.node.clock import Clock
from roamcast.node.control.entity_cache import EntityCache
from roamcast.node.control.queries import Queries, places_of
from roamcast.places import Places
from roamcast.settings import NodeLimits
from roamcast.space import PLANAR
from roamcast.store.registry.values import Entity

NEAREST = "Select Where &location in nearest"


def queries(**limits: int) -> Queries:
    return Queries(Places({}, PLANAR), PLANAR, NodeLimits(**limits))


def test_equal_texts_share_one_query() -> None:
    """However they are written."""
    reader = queries()
    asked = reader.read(NEAREST)
    assert reader.read(NEAREST) is asked
    assert reader.read("select  where &location IN nearest").query is asked.query
    assert reader.stored(Subscription("q", "ann", NEAREST)) is asked


def test_what_is_remembered_is_bounded() -> None:
    """Neither very many texts nor very long ones fill the memory."""
    reader = queries()
    for number in range(10_500):
        reader.of_region(None, [f"t{number}"])
    long = f"{NEAREST} and &a in ({', '.join(map(str, range(1000)))})"
    assert reader.read(long) is not reader.read(long)
    assert len(reader._cache) == 10_000


def test_region_and_terms_read_back_as_written() -> None:
    """Whatever is in the terms."""
    terms = ['"', "\\", "Select", "a b", "\u2028", "ü", "-1", "\n"]
    asked = queries().of_region(Box(-1, -2.5, 3, 1e100), terms)
    assert parse(asked.text) == asked.query
    assert to_text(parse(asked.text)) == asked.text
    assert asked.query.terms == tuple(terms)


def test_limits_are_for_new_subscriptions() -> None:
    """What was accepted is read though the limits are lower now; what is no LACL any more is told."""
    text = 'Select all() Where &terms has ("a", "b")'
    reader = queries(subscription_terms=1)
    assert reader.stored(Subscription("q", "ann", text)).text == text
    with pytest.raises(CorruptionError, match="subscription q"):
        reader.stored(Subscription("q", "ann", "Select nothing"))


@pytest.mark.parametrize(
    ("text", "stands"),
    [
        (NEAREST, True),
        ("Select all() Where &terms has a", False),
        ("Select all() Where &terms has a Life-control #role = guard", True),
    ],
)
def test_what_stands_and_what_simply_runs(text: str, stands: bool) -> None:
    """Bound sources or a life-control make the difference."""
    assert queries().read(text).has_states is stands


def test_the_places_of_a_query() -> None:
    """In both clauses, each once."""
    text = "Select all() Where &location in within(hall) Life-control #location in stage or not #location in hall"
    assert places_of(parse(text)) == ("hall", "stage")


def test_the_directory_knows_who_is_there() -> None:
    """By id and by token; a changed token is worth nothing any more."""
    entities = EntityCache([Entity("a", "source", "old", {"x": 1})])
    entities.put(Entity("a", "source", "new", {}, Position("a", 1, 2, 3)))
    assert entities.by_token("old") is None
    assert entities.by_token("new") == entities.get("a") == Entity("a", "source", "new", {}, Position("a", 1, 2, 3))
    assert entities.attributes_json("a") is None
    entities.remove("a")
    assert (entities.by_token("new"), entities.find("a"), len(entities)) == (None, None, 0)
    for ask in (entities.get, entities.attributes_json):
        with pytest.raises(NotFoundError):
            ask("a")


def test_the_clock_goes_on() -> None:
    """Later at every call, and later than what was before, whatever the wall says."""
    wall = iter([5, 5, 3, 100])
    clock = Clock(after=10, wall=lambda: next(wall))
    assert [clock.now() for _ in range(4)] == [11, 12, 13, 100]
