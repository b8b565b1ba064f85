"""Who may act for which entities."""

from __future__ import annotations

import pytest

from roamcast.errors import AuthenticationError, NotFoundError, PermissionDeniedError
from roamcast.node.callers import Caller, check_caller, check_rights
from roamcast.node.control.entity_cache import EntityCache
from roamcast.store.registry.values import Entity

ENTITIES = EntityCache(
    [
        Entity("g", "gateway", "hash of g"),
        Entity("own", "source", None, gateway="g"),
        Entity("theirs", "source", None, gateway="h"),
        Entity("alone", "source", "hash of alone"),
        Entity("anna", "subscriber", "hash of anna"),
    ]
)
GATEWAY = Caller("g", "gateway", "hash of g")


def test_a_gateway_acts_for_itself_and_its_sources() -> None:
    check_rights(GATEWAY, ["g", "own"], ENTITIES.find)
    for id, error in {
        "theirs": PermissionDeniedError,
        "alone": PermissionDeniedError,
        "anna": NotFoundError,
        "nobody": NotFoundError,
    }.items():
        with pytest.raises(error):
            check_rights(GATEWAY, ["own", id], ENTITIES.find)


def test_others_act_for_themselves() -> None:
    check_rights(Caller("alone", "source", "hash of alone"), ["alone"], ENTITIES.find)
    check_rights(Caller("anna", "subscriber"), ["anna"], ENTITIES.find)
    with pytest.raises(PermissionDeniedError):
        check_rights(Caller("anna", "subscriber"), ["alone"], ENTITIES.find)


@pytest.mark.parametrize(
    "caller",
    [Caller("gone", "gateway", "hash of gone"), Caller("g", "gateway", "earlier"), Caller("g", "source", "hash of g")],
    ids=["removed", "other token", "other kind"],
)
def test_who_is_not_the_same_any_more_acts_for_nobody(caller: Caller) -> None:
    with pytest.raises(AuthenticationError):
        check_caller(caller, ENTITIES.find)
    with pytest.raises(AuthenticationError):
        check_rights(caller, [], ENTITIES.find)
