"""Control: what is old, comes twice or cannot be processed changes nothing."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from controls import bind, bonds, change, lives, spans, unbind, wishes
from pure import placed
from worlds import NOON, removal, subscription

from roamcast.journal.bodies import BindingBody
from roamcast.journal.records import BINDING, REMOVAL, SUBSCRIPTION, Record


@pytest.mark.parametrize("times", [1, 2])
def test_making_the_same_again_changes_nothing(times: int) -> None:
    """A subscription that is live with the same content keeps its place."""
    again = [subscription("s1", "ann", (-1.0, -1.0, 1.0, 1.0), ("b", "a"))] * times
    changes = change(placed(again, first=5), wishes(subscription("s1", "ann", (-1, -1, 1, 1), ("a", "b"))))
    assert (lives(changes), changes.more_subscriptions) == ([], 0)


def test_removing_what_is_not_there_changes_nothing() -> None:
    """A removal may come twice, or for an id that never was."""
    rows = placed([removal("s1", "ann"), removal("s1", "ann"), removal("s9", "ann")], first=5)
    changes = change(rows, wishes(subscription("s1", "ann")))
    assert (len(lives(changes)), changes.more_subscriptions, changes.set_aside) == (1, -1, [])


@pytest.mark.parametrize("other", [BindingBody("ann"), BindingBody("bob", "@ > 1", 9, initial=True)])
def test_binding_what_is_bound_changes_nothing(other: BindingBody) -> None:
    """Whatever it brings, a binding that is live keeps its place, its beginning and its content."""
    again = [bind("b1", "cam", 20, other)] * 2
    changes = change(placed(again, first=5), bonds=bonds(bind("b1", "cam", 10)))
    assert (spans(changes), changes.more_bindings, changes.initial) == ([], 0, [])


def test_unbinding_what_is_not_bound_changes_nothing() -> None:
    """It may come twice, for another source, or for what never was."""
    rows = placed([unbind("b1", "cam"), unbind("b1", "cam"), unbind("b1", "car"), unbind("b9", "cam")], first=5)
    changes = change(rows, bonds=bonds(bind("b1", "cam")))
    assert (len(spans(changes)), changes.more_bindings, changes.set_aside) == (1, -1, [])


def test_an_old_removal_removes_nothing() -> None:
    """What has the name now began after it."""
    old = placed([Record(REMOVAL, "ann", id="x", time=NOON - 1)], first=9)
    for known in ((wishes(subscription("x", "ann")), ()), ((), bonds(bind("x", "cam")))):
        changes = change(old, *known)
        assert (lives(changes), spans(changes), changes.removed) == ([], [], {})


def test_a_binding_from_before_the_last_one_ended_is_an_old_record() -> None:
    """A node that crashed may journal it again, in the same batch or in a later one."""
    rows = placed([bind("b1", "cam", 10), unbind("b1", "cam", 20), bind("b1", "cam", 10), bind("b1", "cam", 20)])
    changes = change(rows)
    assert (spans(changes), changes.more_bindings) == (spans(change(rows[:2])), 0)
    assert spans(change(placed([bind("b1", "cam", 10)], first=9), (), changes.bindings.to_pylist())) == []
    assert len(spans(change(placed([bind("b1", "cam", 21)], first=9), (), changes.bindings.to_pylist()))) == 1


GOOD = {"version": 1, "box": [0, 0, 1, 1], "terms": ["fire"]}


def wish(**changed: Any) -> Record:
    """A subscription whose body has other parts."""
    return Record(SUBSCRIPTION, "ann", id="s1", body=orjson.dumps({**GOOD, **changed}).decode())


def bond(**changed: Any) -> Record:
    """A binding whose body has other parts."""
    body = {"version": 1, "subscriber": "ann", "initial": False, **changed}
    return Record(BINDING, "cam", id="b1", time=NOON, body=orjson.dumps(body).decode())


WITHIN = 'Select all() Where &location in within("p")'

POISON = {
    "unknown kind": Record("teleport", "cam", 1, "t1"),
    "subscription without id": subscription("s1", "ann")._replace(id=None),
    "subscription with an empty id": subscription("", "ann"),
    "subscription without subscriber": subscription("s1", "ann")._replace(entity=None),
    "removal without id": Record(REMOVAL, "ann"),
    "removal without subscriber": removal("s1", "ann")._replace(entity=None),
    "subscription without body": Record(SUBSCRIPTION, "ann", id="s1"),
    "subscription with a broken body": wish(box=[0, 1, 1, 0]),
    "query that is none": wish(query="Select nothing"),
    "query nested too deep": wish(query=f'Select all() Where &terms has ("a") and {"(" * 200}&b = 1{")" * 200}'),
    "place without area": wish(query=WITHIN),
    "place with an area that is none": wish(query=WITHIN, area='{"type":"Polygon"}'),
    "binding without id": bind("b1", "cam")._replace(id=None),
    "binding with an empty id": bind("", "cam"),
    "binding without source": bind("b1", "cam")._replace(entity=None),
    "binding without time": bind("b1", "cam")._replace(time=None),
    "binding at a time before all dates": bind("b1", "cam", -62_135_596_800_000_001),
    "binding at a time after all dates": bind("b1", "cam", 253_402_300_800_000_000),
    "binding without body": bind("b1", "cam")._replace(body=None),
    "binding with a broken body": bond(subscriber=""),
    "binding with a condition that is none": bond(on="@level >"),
    "binding with more than a condition": bond(on="@level > 1 Every 5 s"),
    "unbinding without id": unbind("b1", "cam")._replace(id=None),
    "unbinding without source": unbind("b1", "cam")._replace(entity=None),
    "unbinding without time": unbind("b1", "cam")._replace(time=None),
    "unbinding at a time after all dates": unbind("b1", "cam", 2**63 - 1),
}


@pytest.mark.parametrize("poison", POISON)
def test_what_cannot_be_processed_is_set_aside(poison: str) -> None:
    """It is named with its place and a reason, and the rest of the batch goes on as if it were not there."""
    good = [subscription("s2", "ann"), bind("b2", "cam", 9), removal("s3", "ann"), unbind("b3", "cam", 9)]
    rows = placed([*good[:2], POISON[poison], *good[2:]], first=5)
    changes = change(rows, wishes(subscription("s3", "ann")), bonds(bind("b3", "cam", 5)))
    ((node, offset, reason),) = changes.set_aside
    assert (node, offset) == ("local", 7)
    assert reason
    assert lives(changes) == [("local", "s2", 5, None, None), ("local", "s3", 1, 8, 7)]
    assert spans(changes) == [("b2", "cam", 6, None, 9, None), ("b3", "cam", 1, 9, 5, 9)]
    assert (changes.more_subscriptions, changes.more_bindings, changes.clocks) == (0, 0, {"local": 9})
