"""Control records that are old, duplicate or unusable change nothing."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from batches import placed
from controls import (
    bind,
    binding_rows,
    binding_spans,
    change,
    condition,
    subscription_rows,
    subscription_spans,
    unbind,
)
from worlds import NOON, removal, subscription

from roamcast.journal.bodies import BindingBody
from roamcast.journal.records import BINDING, REMOVAL, SUBSCRIPTION, Record


@pytest.mark.parametrize("times", [1, 2])
def test_creating_the_same_again_changes_nothing(times: int) -> None:
    """A live subscription with the same content keeps its offset."""
    again = [subscription("s1", "ann", (-1.0, -1.0, 1.0, 1.0), ("b", "a"))] * times
    changes = change(placed(again, first=5), subscription_rows(subscription("s1", "ann", (-1, -1, 1, 1), ("a", "b"))))
    assert (subscription_spans(changes), changes.subscription_growth) == ([], 0)


def test_removing_what_does_not_exist_changes_nothing() -> None:
    """A removal may come twice, or for an unknown id."""
    rows = placed([removal("s1", "ann"), removal("s1", "ann"), removal("s9", "ann")], first=5)
    changes = change(rows, subscription_rows(subscription("s1", "ann")))
    assert (len(subscription_spans(changes)), changes.subscription_growth, changes.dead_letters) == (1, -1, [])


@pytest.mark.parametrize("other", [BindingBody("ann"), BindingBody("bob", condition("@ > 1"), 9, initial=True)])
def test_binding_what_is_bound_changes_nothing(other: BindingBody) -> None:
    """A live binding keeps its offset, its start and its content."""
    again = [bind("b1", "cam", 20, other)] * 2
    changes = change(placed(again, first=5), bindings=binding_rows(bind("b1", "cam", 10)))
    assert (binding_spans(changes), changes.binding_growth, changes.initial) == ([], 0, [])


def test_unbinding_what_is_not_bound_changes_nothing() -> None:
    """It may come twice, for another source, or for an unknown id."""
    rows = placed([unbind("b1", "cam"), unbind("b1", "cam"), unbind("b1", "car"), unbind("b9", "cam")], first=5)
    changes = change(rows, bindings=binding_rows(bind("b1", "cam")))
    assert (len(binding_spans(changes)), changes.binding_growth, changes.dead_letters) == (1, -1, [])


def test_an_old_removal_removes_nothing() -> None:
    """The current subscription or binding with its name started later."""
    old = placed([Record(REMOVAL, "ann", id="x", time=NOON - 1)], first=9)
    for known in ((subscription_rows(subscription("x", "ann")), ()), ((), binding_rows(bind("x", "cam")))):
        changes = change(old, *known)
        assert (subscription_spans(changes), binding_spans(changes), changes.removed) == ([], [], {})


def test_a_binding_older_than_the_end_of_the_last_one_is_ignored() -> None:
    """A node that crashed may journal it again, in the same batch or in a later one."""
    rows = placed([bind("b1", "cam", 10), unbind("b1", "cam", 20), bind("b1", "cam", 10), bind("b1", "cam", 20)])
    changes = change(rows)
    assert (binding_spans(changes), changes.binding_growth) == (binding_spans(change(rows[:2])), 0)
    assert binding_spans(change(placed([bind("b1", "cam", 10)], first=9), (), changes.bindings.to_pylist())) == []
    assert len(binding_spans(change(placed([bind("b1", "cam", 21)], first=9), (), changes.bindings.to_pylist()))) == 1


GOOD = {"version": 2, "box": [0, 0, 1, 1], "terms": ["fire"]}


def subscription_with(**changed: Any) -> Record:
    """A subscription with changes in its body."""
    return Record(SUBSCRIPTION, "ann", id="s1", body=orjson.dumps({**GOOD, **changed}).decode())


def binding_with(**changed: Any) -> Record:
    """A binding with changes in its body."""
    body = {"version": 2, "subscriber": "ann", "initial": False, **changed}
    return Record(BINDING, "cam", id="b1", time=NOON, body=orjson.dumps(body).decode())


def nested(depth: int) -> list[Any]:
    """An encoded condition of so many levels."""
    condition: list[Any] = ["=", "&b", 1.0]
    for _ in range(depth):
        condition = ["not", condition]
    return condition


POISON = {
    "unknown kind": Record("teleport", "cam", 1, "t1"),
    "subscription without id": subscription("s1", "ann")._replace(id=None),
    "subscription with an empty id": subscription("", "ann"),
    "subscription without subscriber": subscription("s1", "ann")._replace(entity=None),
    "removal without id": Record(REMOVAL, "ann"),
    "removal without subscriber": removal("s1", "ann")._replace(entity=None),
    "subscription without body": Record(SUBSCRIPTION, "ann", id="s1"),
    "subscription with a broken body": subscription_with(box=[0, 1, 1, 0]),
    "condition that is a text": subscription_with(source="&b = 1"),
    "condition with an unknown operator": subscription_with(on=["~", "@level", 1]),
    "condition that is nested too deeply": subscription_with(source=nested(200)),
    "place without area": subscription_with(place="p"),
    "area without place": subscription_with(area='{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,0]]]}'),
    "place with an unreadable area": subscription_with(place="p", area='{"type":"Polygon"}'),
    "binding without id": bind("b1", "cam")._replace(id=None),
    "binding with an empty id": bind("", "cam"),
    "binding without source": bind("b1", "cam")._replace(entity=None),
    "binding without time": bind("b1", "cam")._replace(time=None),
    "binding at a time before the year 1": bind("b1", "cam", -62_135_596_800_000_001),
    "binding at a time after the year 9999": bind("b1", "cam", 253_402_300_800_000_000),
    "binding without body": bind("b1", "cam")._replace(body=None),
    "binding with a broken body": binding_with(subscriber=""),
    "binding with a condition that is a text": binding_with(on="@level > 1"),
    "binding with a condition that lacks a value": binding_with(on=[">", "@level"]),
    "unbinding without id": unbind("b1", "cam")._replace(id=None),
    "unbinding without source": unbind("b1", "cam")._replace(entity=None),
    "unbinding without time": unbind("b1", "cam")._replace(time=None),
    "unbinding at a time after the year 9999": unbind("b1", "cam", 2**63 - 1),
}


@pytest.mark.parametrize("poison", POISON)
def test_an_unusable_record_becomes_a_dead_letter(poison: str) -> None:
    """It is reported with offset and reason, and the rest of the batch is processed as if it were not there."""
    good = [subscription("s2", "ann"), bind("b2", "cam", 9), removal("s3", "ann"), unbind("b3", "cam", 9)]
    rows = placed([*good[:2], POISON[poison], *good[2:]], first=5)
    changes = change(rows, subscription_rows(subscription("s3", "ann")), binding_rows(bind("b3", "cam", 5)))
    ((node, offset, reason),) = changes.dead_letters
    assert (node, offset) == ("local", 7)
    assert reason
    assert subscription_spans(changes) == [("local", "s2", 5, None, None), ("local", "s3", 1, 8, 7)]
    assert binding_spans(changes) == [("b2", "cam", 6, None, 9, None), ("b3", "cam", 1, 9, 5, 9)]
    assert (changes.subscription_growth, changes.binding_growth, changes.latest_binding_times) == (0, 0, {"local": 9})
