from __future__ import annotations

import numpy as np
import pytest

from roamcast.bind.registry import Entity, Registry
from roamcast.errors import InputError, NotFoundError
from roamcast.model import Position
from roamcast.space import GEOGRAPHIC, PLANAR


def registry(*ids: str) -> Registry:
    """Sources without positions, with handles in the order given."""
    made = Registry(PLANAR)
    for handle, id in enumerate(ids):
        made.add(Entity(id, "source", {}, handle), None)
    return made


def where(made: Registry, id: str) -> tuple[float, float, int] | None:
    position = made.position(made.get(id))
    return None if position is None else (position.x, position.y, position.time)


def test_unknown_entity() -> None:
    """Who is not registered is not found."""
    with pytest.raises(NotFoundError, match="no entity 'a'"):
        Registry(PLANAR).get("a")


def test_an_entity_of_the_other_kind() -> None:
    """A source is not found among the subscribers, and the error says what it is."""
    with pytest.raises(NotFoundError, match=r"no subscriber 'a'.*is a source"):
        registry("a").get("a", "subscriber")


def test_no_position_at_first() -> None:
    """An entity may be registered before anybody knows where it is."""
    made = registry("a")
    assert where(made, "a") is None
    assert np.isnan(made.where(np.array([0]))).all()


def test_a_first_position() -> None:
    """The first position of an entity is told apart from later ones."""
    made = registry("a")
    assert made.move(["a"], [1.0], [2.0], [5]).first.tolist() == [True]
    assert made.move(["a"], [2.0], [2.0], [6]).first.tolist() == [False]
    assert where(made, "a") == (2.0, 2.0, 6)


def test_an_older_move_is_ignored_and_counted() -> None:
    """Clocks that go back do not move anybody back."""
    made = registry("a")
    made.move(["a"], [1.0], [1.0], [5])
    assert len(made.move(["a"], [9.0], [9.0], [4]).handles) == 0
    assert where(made, "a") == (1.0, 1.0, 5)
    assert made.stale == 1


def test_a_move_at_the_same_time_counts() -> None:
    """Of two moves at one time the later to come counts."""
    made = registry("a")
    made.move(["a"], [1.0], [1.0], [5])
    made.move(["a"], [2.0], [2.0], [5])
    assert where(made, "a") == (2.0, 2.0, 5)
    assert made.stale == 0


def test_a_batch_is_as_its_moves_one_by_one() -> None:
    """In a batch the latest move of each entity counts, and those behind a later one are counted as stale."""
    rng = np.random.default_rng(7)
    for _ in range(50):
        ids = [str(id) for id in rng.integers(0, 4, 12)]
        x, times = rng.integers(0, 9, 12).astype(float), rng.integers(0, 6, 12)
        batch, single = registry(*"0123"), registry(*"0123")
        moves = batch.move(ids, x, x, times)
        for id, point, time in zip(ids, x, times, strict=True):
            single.move([id], [point], [point], [time])
        assert [where(batch, id) for id in "0123"] == [where(single, id) for id in "0123"]
        assert batch.stale == single.stale
        assert sorted(moves.handles.tolist()) == sorted(set(map(int, ids)))


def test_an_empty_batch() -> None:
    """No moves move nobody."""
    assert len(registry("a").move([], [], [], []).handles) == 0


def test_a_batch_with_an_unknown_entity_changes_nothing() -> None:
    """A batch is taken whole or not at all."""
    made = registry("a")
    with pytest.raises(NotFoundError, match="no entity 'b'"):
        made.move(["a", "b"], [1.0, 1.0], [1.0, 1.0], [1, 1])
    assert where(made, "a") is None


def test_a_batch_with_a_point_out_of_space_changes_nothing() -> None:
    """The error names the entity and the coordinate."""
    made = Registry(GEOGRAPHIC)
    for handle, id in enumerate("ab"):
        made.add(Entity(id, "subscriber", {}, handle), None)
    with pytest.raises(InputError, match="b: y 91 is outside"):
        made.move(["a", "b"], [1.0, 1.0], [1.0, 91.0], [1, 1])
    assert where(made, "a") is None


def test_sources_by_attribute() -> None:
    """Sources are found by any attribute they have now, subscribers never."""
    made = Registry(PLANAR)
    lamp = Entity("lamp", "source", {"context": "light", "floor": 1}, 0)
    made.add(lamp, None)
    made.add(Entity("ann", "subscriber", {"context": "light"}, 1), None)
    assert list(made.sources_with("context", "light")) == ["lamp"]
    made.change(lamp, {"floor": 1})
    assert list(made.sources_with("context", "light")) == []
    assert list(made.sources_with("floor", 1)) == ["lamp"]
    made.remove(lamp)
    assert list(made.sources_with("floor", 1)) == []
    assert list(made.sources) == []


def test_a_handle_that_is_used_again_has_no_past() -> None:
    """Who gets the handle of a removed entity does not get its position."""
    made = Registry(PLANAR)
    made.add(Entity("a", "source", {}, 0), Position("a", 1.0, 1.0, 9))
    made.remove(made.get("a"))
    made.add(Entity("b", "source", {}, 0), None)
    assert where(made, "b") is None
    made.move(["b"], [2.0], [2.0], [1])
    assert where(made, "b") == (2.0, 2.0, 1)
