"""Commands for gateways and their sources."""

from __future__ import annotations

import pytest
from commands import invoke, invoke_json
from nodes import RunningNode

from roamcast.client.tokens import TokenFile
from roamcast.errors import ConflictError, InputError, NotFoundError


def test_a_gateway_and_its_sources_are_registered_and_removed(node: RunningNode) -> None:
    """The sources have no tokens."""
    assert invoke("register", "gateway", "hub", "--attribute", "floor=2") == "registered gateway hub\n"
    registered = invoke_json("register", "source", "meter-1", "--gateway", "hub", "--x", "1", "--y", "2")
    assert registered == {"kind": "source", "id": "meter-1", "gateway": "hub"}
    again = ("register", "source", "meter-2", "--gateway", "hub")
    assert [invoke(*again), invoke(*again)] == [
        "registered source meter-2 of gateway hub\n",
        "gateway hub has source meter-2 already; nothing is changed\n",
    ]
    assert TokenFile().ids(node.url) == ["hub"]
    assert node.operator().entity("meter-1")["position"]["x"] == 1
    assert invoke("where", "hub") == "gateway hub\nfloor: 2\n"
    invoke("unregister", "meter-1", "--gateway", "hub", "--yes")
    with pytest.raises(NotFoundError):
        node.operator().entity("meter-1")
    assert invoke_json("unregister", "hub", "--yes") == {"kind": "gateway", "id": "hub"}
    with pytest.raises(NotFoundError):
        node.operator().entity("meter-2")
    assert TokenFile().ids(node.url) == []


def test_what_a_gateway_cannot_have_is_refused(node: RunningNode) -> None:
    with pytest.raises(InputError, match="no position"):
        invoke("register", "gateway", "hub", "--x", "1", "--y", "2")
    invoke("register", "gateway", "hub")
    with pytest.raises(InputError, match="belongs to no gateway"):
        invoke("register", "subscriber", "anna", "--gateway", "hub")
    invoke("register", "source", "mic")
    with pytest.raises(ConflictError):
        invoke("register", "source", "mic", "--gateway", "hub")
    with pytest.raises(NotFoundError):
        invoke("register", "source", "meter", "--gateway", "nobody")
