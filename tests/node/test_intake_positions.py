"""Positions of a request equal those of an intake that looks at one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.errors import InputError, PermissionDeniedError, RoamcastError
from roamcast.model import Position
from roamcast.node.clock import check_time
from roamcast.node.columns.rows import positions_of_models
from roamcast.node.intake import positions_of
from roamcast.node.publish_rights import PublishRights
from roamcast.node.schemas import PositionIn
from roamcast.space import GEOGRAPHIC

NOW = 1_700_000_000_000_000


def check(entity: str) -> None:
    if entity == "foreign":
        raise PermissionDeniedError("not an entity of this gateway", hint="name one of its own")


rows = st.lists(
    st.builds(
        PositionIn,
        x=st.sampled_from([0, 1.5, -180, 180.5]),
        y=st.sampled_from([0, -90, 1.5, 91]),
        time=st.sampled_from([None, 0.0, NOW / 1e6 + 299, NOW / 1e6 + 301]),
        entity=st.sampled_from([None, "a", "b", "foreign"]),
    ),
    min_size=1,
    max_size=5,
)


def reference(default: str | None, received: Sequence[PositionIn]) -> list[Position]:
    """Entities first, then one row after the other. Raises errors without hints."""
    entities = [row.entity or default for row in received]
    for row, entity in enumerate(entities):
        if entity is None:
            raise InputError("entity is required, because the token is of a gateway", where=f"positions[{row}].entity")
    for row, entity in enumerate(entities):
        if entity == "foreign":
            raise PermissionDeniedError("not an entity of this gateway", where=f"positions[{row}].entity")
    positions = []
    for row, (entity, position) in enumerate(zip(entities, received, strict=True)):
        try:
            GEOGRAPHIC.check_point(position.x, position.y)
        except InputError as error:
            raise InputError(error.message, where=f"positions[{row}].{error.where}") from None
        time = NOW if position.time is None else position.time
        check_time(time, NOW, 300.0, f"positions[{row}].time")
        positions.append(Position(str(entity), position.x, position.y, time))
    return positions


def outcome(take_in: Callable[[], list[Position]]) -> object:
    try:
        return take_in()
    except RoamcastError as error:
        return type(error), error.message, error.where


@pytest.mark.parametrize("default", [None, "a"])
@given(received=rows)
def test_positions_of_many_entities_equal_the_reference(default: str | None, received: list[PositionIn]) -> None:
    """Or the error is the same."""

    rights, columns = PublishRights(default, check), positions_of_models(received)
    taken = outcome(lambda: positions_of(columns, rights, GEOGRAPHIC, 300.0, bulk=True, now=NOW))
    assert taken == outcome(lambda: reference(default, received))


def test_errors_of_a_single_position_name_the_field_only() -> None:
    columns = positions_of_models([PositionIn(x=1, y=2, entity="b")])
    with pytest.raises(PermissionDeniedError) as caught:
        positions_of(columns, PublishRights.of_source("a"), GEOGRAPHIC, 300.0, bulk=False, now=NOW)
    assert (caught.value.where, caught.value.message) == ("entity", "the token belongs to a")
