from __future__ import annotations

import numpy as np
import pytest

from roamcast.bind.lcesm.registry import Arrivals, Kind, Moves, Registry
from roamcast.bind.nearest.id_table import Names
from roamcast.bind.nearest.watch import Watch
from roamcast.errors import ConflictError, InputError, NotFoundError
from roamcast.lacl.conditions import Attribute
from roamcast.model import Position
from roamcast.space import GEOGRAPHIC, PLANAR, Space


class Desk(Registry):
    """A registry with the watch that keeps its positions."""

    def __init__(self, space: Space = PLANAR) -> None:
        self.watch = Watch(space)
        super().__init__(space, self.watch, Names())

    def register(
        self, id: str, kind: Kind = "source", position: Position | None = None, **attributes: Attribute
    ) -> None:
        new = Arrivals()
        new.add(id, attributes, position)
        self.add(kind, new)

    def take(self, *moves: tuple[str, float, int]) -> Moves:
        """Moves to (x, x)."""
        ids, x, times = zip(*moves, strict=True)
        taken = self.move(ids, x, x, times)
        self.watch.move(taken.handles, taken.x, taken.y)
        return taken

    def whereabouts(self, id: str) -> tuple[float, int] | None:
        position = self.position(self.get(id))
        assert position is None or position.x == position.y
        return None if position is None else (position.x, position.time)


def registry(*ids: str) -> Desk:
    """Sources without positions, with handles in the order given."""
    made = Desk()
    for id in ids:
        made.register(id)
    return made


def test_unknown_entity() -> None:
    """Who is not registered is not found."""
    with pytest.raises(NotFoundError, match="no entity 'a'"):
        registry().get("a")


def test_an_entity_of_the_other_kind() -> None:
    """A source is not found among the subscribers, and the error says what it is."""
    with pytest.raises(NotFoundError, match=r"no subscriber 'a'.*is a source"):
        registry("a").get("a", "subscriber")


def test_the_first_of_many_that_is_unknown() -> None:
    """Of many ids the one that nobody has is named, or is of the wrong kind."""
    made = registry("a", "b")
    made.register("ann", "subscriber")
    with pytest.raises(NotFoundError, match="no entity 'x'"):
        made.known(["a", "x", "y"])
    with pytest.raises(NotFoundError, match=r"no subscriber 'b'.*is a source"):
        made.known(["ann", "b"], "subscriber")
    assert made.known(["b", "ann", "a"]).tolist() == [1, 2, 0]


def test_an_id_is_taken_once() -> None:
    """Sources and subscribers share one set of ids."""
    made = registry("a")
    with pytest.raises(ConflictError, match="'a' is taken"):
        made.register("a", "subscriber")


def test_no_position_at_first() -> None:
    """An entity may be registered before anybody knows where it is."""
    made = registry("a")
    assert made.whereabouts("a") is None
    assert not made.placed(0)
    assert np.isnan(made.where(np.array([0], np.int32))).all()


def test_a_first_position() -> None:
    """The first position of an entity is told apart from later ones."""
    made = registry("a")
    assert made.take(("a", 1.0, 5)).first.tolist() == [True]
    assert made.take(("a", 2.0, 6)).first.tolist() == [False]
    assert made.whereabouts("a") == (2.0, 6)


def test_a_position_that_is_known_from_the_start() -> None:
    """Who is registered with a position is there since its time."""
    made = registry()
    made.register("a", position=Position("a", 3.0, 3.0, 9))
    assert made.whereabouts("a") == (3.0, 9)
    assert len(made.take(("a", 4.0, 8)).handles) == 0


def test_an_older_move_is_ignored_and_counted() -> None:
    """Clocks that go back do not move anybody back."""
    made = registry("a")
    made.take(("a", 1.0, 5))
    assert len(made.take(("a", 9.0, 4)).handles) == 0
    assert made.whereabouts("a") == (1.0, 5)
    assert made.stale == 1


def test_a_move_at_the_same_time_counts() -> None:
    """Of two moves at one time the later to come counts."""
    made = registry("a")
    made.take(("a", 1.0, 5))
    made.take(("a", 2.0, 5))
    assert made.whereabouts("a") == (2.0, 5)
    assert made.stale == 0


@pytest.mark.parametrize("entities", [4, 40])
def test_a_batch_is_as_its_moves_one_by_one(entities: int) -> None:
    """The latest move of each entity counts, and those behind a later one are stale; whether any moves twice or not."""
    rng = np.random.default_rng(7)
    known = [str(number) for number in range(entities)]
    for _ in range(50):
        moves = [(str(id), float(x), time) for id, x, time in rng.integers(0, (entities, 9, 6), (6, 3)).tolist()]
        batch, single = registry(*known), registry(*known)
        for made in (batch, single):
            made.take(*((id, 8.0, 3) for id in known[::2]))
        taken = batch.take(*moves)
        for move in moves:
            single.take(move)
        assert [batch.whereabouts(id) for id in known] == [single.whereabouts(id) for id in known]
        assert batch.stale == single.stale
        assert len(set(taken.handles.tolist())) == len(taken.handles)


def test_an_empty_batch() -> None:
    """No moves move nobody."""
    assert len(registry("a").move([], [], [], []).handles) == 0


def test_a_batch_with_an_unknown_entity_changes_nothing() -> None:
    """A batch is taken whole or not at all."""
    made = registry("a")
    with pytest.raises(NotFoundError, match="no entity 'b'"):
        made.take(("a", 1.0, 1), ("b", 1.0, 1))
    assert made.whereabouts("a") is None


@pytest.mark.parametrize(
    ("space", "y", "message"),
    [
        (GEOGRAPHIC, 91.0, "b: y 91 is outside"),
        (PLANAR, np.nan, "b: y is not a number"),
        (PLANAR, 1e200, "b: y 1e.200 is outside"),
    ],
)
def test_a_batch_with_a_point_out_of_space_changes_nothing(space: Space, y: float, message: str) -> None:
    """The error names the entity and the coordinate; nowhere are points so far that distances overflow."""
    made = Desk(space)
    for id in "ab":
        made.register(id, "subscriber")
    with pytest.raises(InputError, match=message):
        made.move(["a", "b"], [1.0, 1.0], [1.0, y], [1, 1])
    assert made.whereabouts("a") is None


@pytest.mark.parametrize(
    ("x", "y", "times"), [([1.0], [1.0], [1]), ([1.0, 1.0], [1.0, 1.0], [1]), ([1.0, 1.0], [1.0, 1.0, 1.0], [1, 1])]
)
def test_a_batch_with_columns_of_different_lengths_changes_nothing(
    x: list[float], y: list[float], times: list[int]
) -> None:
    """A move is an entity, a point and a time."""
    made = registry("a", "b")
    with pytest.raises(InputError, match=r"2 entities, \d x, \d y and \d times"):
        made.move(["a", "b"], x, y, times)
    assert made.whereabouts("a") is None


def test_sources_by_attribute() -> None:
    """Sources are found by any attribute they have now, subscribers never."""
    made = registry()
    made.register("lamp", context="light", floor=1)
    made.register("ann", "subscriber", context="light")
    lamp = made.get("lamp")
    assert list(made.sources_with("context", "light")) == [lamp.handle]
    lamp = made.change(lamp, {"floor": 1})
    assert list(made.sources_with("context", "light")) == []
    assert list(made.sources_with("floor", 1)) == [lamp.handle]
    made.remove(lamp)
    assert list(made.sources_with("floor", 1)) == []
    assert list(made.sources) == []


def test_an_entity_is_as_it_was_registered() -> None:
    """By id and by handle it has its kind and its attributes."""
    made = registry("a")
    made.register("ann", "subscriber", role="guard")
    ann = made.get("ann")
    assert (ann.id, ann.kind, ann.attributes) == ("ann", "subscriber", {"role": "guard"})
    assert made.at(ann.handle) == ann
    assert "ann" in made
    made.remove(ann)
    assert "ann" not in made
    assert len(made) == 1


def test_a_handle_that_is_used_again_has_no_past() -> None:
    """Who gets the handle of a removed entity gets neither its position nor its attributes."""
    made = registry()
    made.register("a", position=Position("a", 1.0, 1.0, 9), role="guard")
    gone = made.get("a")
    made.remove(gone)
    made.register("b", "subscriber")
    assert made.get("b").handle == gone.handle
    assert made.get("b").attributes == {}
    assert made.whereabouts("b") is None
    made.take(("b", 2.0, 1))
    assert made.whereabouts("b") == (2.0, 1)
