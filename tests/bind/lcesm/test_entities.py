from __future__ import annotations

import numpy as np
import pytest

from roamcast.bind.lcesm.entities import EntityKind, EntityMoves, EntityTable, NewEntities
from roamcast.bind.nearest.kernels.id_table import IdTable
from roamcast.bind.nearest.sources import NearestSources
from roamcast.errors import ConflictError, InputError, NotFoundError
from roamcast.lacl.conditions import Attribute
from roamcast.model import Position
from roamcast.space import GEOGRAPHIC, PLANAR, Space


class Table(EntityTable):
    """An entity table with its own search arrays."""

    def __init__(self, space: Space = PLANAR) -> None:
        self.nearest = NearestSources(space)
        super().__init__(space, self.nearest, IdTable())

    def register(
        self, id: str, kind: EntityKind = "source", position: Position | None = None, **attributes: Attribute
    ) -> None:
        new = NewEntities()
        new.add(id, attributes, position)
        self.add(kind, new)

    def apply(self, *moves: tuple[str, float, int]) -> EntityMoves:
        """EntityMoves to (x, x)."""
        ids, x, times = zip(*moves, strict=True)
        accepted = self.move(ids, x, x, times)
        self.nearest.move(accepted.handles, accepted.x, accepted.y)
        return accepted

    def last_position(self, id: str) -> tuple[float, int] | None:
        position = self.position(self.get(id))
        assert position is None or position.x == position.y
        return None if position is None else (position.x, position.time)


def table_with(*ids: str) -> Table:
    """Sources without positions, with handles in the order given."""
    table = Table()
    for id in ids:
        table.register(id)
    return table


def test_an_unknown_entity_raises() -> None:
    """With its id in the message."""
    with pytest.raises(NotFoundError, match="unknown entity 'a'"):
        table_with().get("a")


def test_an_entity_of_the_other_kind_raises() -> None:
    """The error says which kind it is."""
    with pytest.raises(NotFoundError, match=r"unknown subscriber 'a'.*is a source"):
        table_with("a").get("a", "subscriber")


def test_the_first_unknown_entity_is_named() -> None:
    """Or the first of the wrong kind."""
    table = table_with("a", "b")
    table.register("ann", "subscriber")
    with pytest.raises(NotFoundError, match="unknown entity 'x'"):
        table.known(["a", "x", "y"])
    with pytest.raises(NotFoundError, match=r"unknown subscriber 'b'.*is a source"):
        table.known(["ann", "b"], "subscriber")
    assert table.known(["b", "ann", "a"]).tolist() == [1, 2, 0]


def test_sources_and_subscribers_share_ids() -> None:
    """An id is used once."""
    table = table_with("a")
    with pytest.raises(ConflictError, match="'a' is already in use"):
        table.register("a", "subscriber")


def test_an_entity_may_have_no_position() -> None:
    """Its coordinates are NaN."""
    table = table_with("a")
    assert table.last_position("a") is None
    assert not table.has_position(0)
    assert np.isnan(table.coordinates(np.array([0], np.int32))).all()


def test_the_first_position_is_marked() -> None:
    """Later ones are not."""
    table = table_with("a")
    assert table.apply(("a", 1.0, 5)).is_first.tolist() == [True]
    assert table.apply(("a", 2.0, 6)).is_first.tolist() == [False]
    assert table.last_position("a") == (2.0, 6)


def test_an_entity_may_be_registered_with_a_position() -> None:
    """Older moves are ignored."""
    table = table_with()
    table.register("a", position=Position("a", 3.0, 3.0, 9))
    assert table.last_position("a") == (3.0, 9)
    assert len(table.apply(("a", 4.0, 8)).handles) == 0


def test_an_older_move_is_ignored() -> None:
    """Clocks may go back."""
    table = table_with("a")
    table.apply(("a", 1.0, 5))
    assert len(table.apply(("a", 9.0, 4)).handles) == 0
    assert table.last_position("a") == (1.0, 5)


def test_a_later_move_with_the_same_time_counts() -> None:
    """In the order of arrival."""
    table = table_with("a")
    table.apply(("a", 1.0, 5))
    table.apply(("a", 2.0, 5))
    assert table.last_position("a") == (2.0, 5)


@pytest.mark.parametrize("entities", [4, 40])
def test_a_batch_has_the_same_result_as_single_moves(entities: int) -> None:
    """With and without several moves of an entity."""
    rng = np.random.default_rng(7)
    known = [str(number) for number in range(entities)]
    for _ in range(50):
        moves = [(str(id), float(x), time) for id, x, time in rng.integers(0, (entities, 9, 6), (6, 3)).tolist()]
        batch, single = table_with(*known), table_with(*known)
        for table in (batch, single):
            table.apply(*((id, 8.0, 3) for id in known[::2]))
        accepted = batch.apply(*moves)
        for move in moves:
            single.apply(move)
        assert [batch.last_position(id) for id in known] == [single.last_position(id) for id in known]
        assert len(set(accepted.handles.tolist())) == len(accepted.handles)


def test_an_empty_batch_moves_nothing() -> None:
    """No moves are accepted."""
    assert len(table_with("a").move([], [], [], []).handles) == 0


def test_a_batch_with_an_unknown_entity_changes_nothing() -> None:
    """It is applied completely or not at all."""
    table = table_with("a")
    with pytest.raises(NotFoundError, match="unknown entity 'b'"):
        table.apply(("a", 1.0, 1), ("b", 1.0, 1))
    assert table.last_position("a") is None


@pytest.mark.parametrize(
    ("space", "y", "message"),
    [
        (GEOGRAPHIC, 91.0, "b: y 91 is outside"),
        (PLANAR, np.nan, "b: y is not a number"),
        (PLANAR, 1e200, "b: y 1e.200 is outside"),
    ],
)
def test_a_batch_with_an_invalid_point_changes_nothing(space: Space, y: float, message: str) -> None:
    """The error names the entity and the coordinate."""
    table = Table(space)
    for id in "ab":
        table.register(id, "subscriber")
    with pytest.raises(InputError, match=message):
        table.move(["a", "b"], [1.0, 1.0], [1.0, y], [1, 1])
    assert table.last_position("a") is None


@pytest.mark.parametrize(
    ("x", "y", "times"), [([1.0], [1.0], [1]), ([1.0, 1.0], [1.0, 1.0], [1]), ([1.0, 1.0], [1.0, 1.0, 1.0], [1, 1])]
)
def test_columns_of_different_lengths_change_nothing(x: list[float], y: list[float], times: list[int]) -> None:
    """A move is an entity, a point and a time."""
    table = table_with("a", "b")
    with pytest.raises(InputError, match=r"2 entities, \d x, \d y and \d times"):
        table.move(["a", "b"], x, y, times)
    assert table.last_position("a") is None


def test_sources_are_found_by_attribute() -> None:
    """By their current ones; subscribers never."""
    table = table_with()
    table.register("lamp", context="light", floor=1)
    table.register("ann", "subscriber", context="light")
    lamp = table.get("lamp")
    assert list(table.sources_with("context", "light")) == [lamp.handle]
    lamp = table.change(lamp, {"floor": 1})
    assert list(table.sources_with("context", "light")) == []
    assert list(table.sources_with("floor", 1)) == [lamp.handle]
    table.remove(lamp)
    assert list(table.sources_with("floor", 1)) == []
    assert list(table.sources) == []


def test_an_entity_is_found_by_id_and_by_handle() -> None:
    """With its kind and attributes, until it is removed."""
    table = table_with("a")
    table.register("ann", "subscriber", role="guard")
    ann = table.get("ann")
    assert (ann.id, ann.kind, ann.attributes) == ("ann", "subscriber", {"role": "guard"})
    assert table.at(ann.handle) == ann
    assert "ann" in table
    table.remove(ann)
    assert "ann" not in table
    assert len(table) == 1


def test_a_reused_handle_has_no_position_and_attributes() -> None:
    """Of the removed entity."""
    table = table_with()
    table.register("a", position=Position("a", 1.0, 1.0, 9), role="guard")
    removed = table.get("a")
    table.remove(removed)
    table.register("b", "subscriber")
    assert table.get("b").handle == removed.handle
    assert table.get("b").attributes == {}
    assert table.last_position("b") is None
    table.apply(("b", 2.0, 1))
    assert table.last_position("b") == (2.0, 1)
