"""Sources, two subscribers and a gateway register, move, and in the end leave."""

from __future__ import annotations

from typing import Final

from roamcast.node.http.examples.values import ANNA, BEN, HUB, MIC, OPERATOR, PROOF, TIME, Example, Examples
from roamcast.node.http.schemas.errors import error_example

__all__ = ["ENTITIES", "LAST"]

_CAMERA = "y1gXk1cFJd2m6u0n8cV5bQe3rT7wZaS9pL4hN0oM-iU"
_MIC_1 = {
    "id": "mic-1",
    "kind": "source",
    "attributes": {"context": "noise", "floor": 2},
    "position": {"x": 8.5, "y": 53.5, "time": TIME},
    "gateway": None,
}
_ANNA_1 = {
    "id": "anna",
    "kind": "subscriber",
    "attributes": {},
    "position": {"x": 8.51, "y": 53.5, "time": TIME},
    "gateway": None,
}
_METER_1 = {
    "id": "meter-1",
    "kind": "source",
    "attributes": {"context": "water"},
    "position": {"x": 8.52, "y": 53.5, "time": TIME},
    "gateway": "hub",
}
_ROLES = {"name": None, "next_seq": None, "sources": None}

ENTITIES: Final[Examples] = {
    "register_gateway": {
        "hub": Example("A gateway", {"id": "hub", "kind": "gateway", "token": HUB}, 201, body={"id": "hub"}),
    },
    "register_source": {
        "microphone": Example(
            "A source with a position",
            {"id": "mic-1", "kind": "source", "token": MIC, "gateway": None},
            201,
            body={"id": "mic-1", "attributes": {"context": "noise"}, "x": 8.5, "y": 53.5},
        ),
        "camera": Example(
            "A source with a token of its own choice",
            {"id": "camera-1", "kind": "source", "token": _CAMERA, "gateway": None},
            201,
            body={"id": "camera-1", "token": _CAMERA},
        ),
        "again": Example(
            "The same again, because no response came",
            {"id": "camera-1", "kind": "source", "token": _CAMERA, "gateway": None},
            200,
            body={"id": "camera-1", "token": _CAMERA},
        ),
        "gateway": Example(
            "A source of a gateway",
            {"id": "meter-1", "kind": "source", "token": None, "gateway": "hub"},
            201,
            caller=HUB,
            body={"id": "meter-1", "x": 8.52, "y": 53.5},
        ),
        "list": Example(
            "Several sources of a gateway. One of the ids belongs to another source",
            {
                "added": 1,
                "existing": 1,
                "refused": 1,
                "sources": [
                    {"id": "meter-1", "new": False},
                    {"id": "meter-2", "new": True},
                    {
                        "id": "mic-1",
                        **error_example(
                            "conflict", "this id or its token is already in use", "mic-1", "choose another id"
                        ),
                    },
                ],
            },
            200,
            caller=HUB,
            body=[{"id": "meter-1"}, {"id": "meter-2"}, {"id": "mic-1"}],
        ),
    },
    "list_sources": {
        "first": Example(
            "The first of them",
            {"sources": [{**_METER_1, "attributes": {}}], "more": True},
            caller=HUB,
            parameters={"limit": 1},
        ),
    },
    "set_source_attributes": {
        "meter": Example("All of them", _METER_1, caller=HUB, parameters={"id": "meter-1"}, body={"context": "water"}),
    },
    "register_subscriber": {
        "anna": Example(
            "A subscriber",
            {"id": "anna", "kind": "subscriber", "token": ANNA, "name": "local.node.anna"},
            201,
            body={"id": "anna"},
        ),
        "ben": Example(
            "Another subscriber",
            {"id": "ben", "kind": "subscriber", "token": BEN, "name": "local.node.ben"},
            201,
            body={"id": "ben", "attributes": {"role": "guard"}},
        ),
    },
    "set_attributes": {
        "microphone": Example("All of them", _MIC_1, caller=MIC, body={"context": "noise", "floor": 2}),
    },
    "report_positions": {
        "now": Example(
            "The current position",
            {"accepted": 1, "stale": 0, "pending": []},
            caller=ANNA,
            body={"x": 8.51, "y": 53.5},
        ),
        "earlier": Example(
            "Recorded positions; both are older than the known one",
            {"accepted": 2, "stale": 2, "pending": []},
            caller=ANNA,
            body=[{"x": 8.2, "y": 53.4, "time": "2026-01-31T11:58:00Z"}, {"x": 8.3, "y": 53.4, "time": 1769860740}],
        ),
        "gateway": Example(
            "Of several sources of a gateway",
            {"accepted": 2, "stale": 0, "pending": []},
            caller=HUB,
            body=[{"entity": "meter-1", "x": 8.52, "y": 53.5}, {"entity": "meter-2", "x": 8.53, "y": 53.5}],
        ),
    },
    "show_me": {
        "source": Example("A source", {**_MIC_1, **_ROLES, "next_seq": 1}, caller=MIC),
        "subscriber": Example("A subscriber", {**_ANNA_1, **_ROLES, "name": "local.node.anna"}, caller=ANNA),
    },
}

LAST: Final[Examples] = {
    "forget_source_position": {"meter": Example("By id", status=204, caller=HUB, parameters={"id": "meter-2"})},
    "remove_source": {"meter": Example("By id", status=204, caller=HUB, parameters={"id": "meter-2"})},
    "show_entity": {
        "anna": Example(
            "With the operator token",
            {**_ANNA_1, "subscriptions": ["fires", "near"], "count": 2, "sources": None},
            caller=OPERATOR,
            parameters={"id": "anna"},
        ),
        "hub": Example(
            "A gateway itself",
            {
                "id": "hub",
                "kind": "gateway",
                "attributes": {},
                "position": None,
                "gateway": None,
                "subscriptions": [],
                "count": 0,
                "sources": 1,
            },
            caller=HUB,
            parameters={"id": "hub"},
        ),
    },
    "arrive": {
        "ben": Example(
            "Ben arrives",
            {"name": "local.node.ben", "epoch": 2, "office": "local", "token": "mailbox-token-of-ben"},
            body={
                "name": "local.node.ben",
                "epoch": 2,
                "move_proof": PROOF,
                "secret": "wHq3vJ8bYd1rQmZx",
                "previous": "local",
            },
        ),
    },
    "renew_token": {
        "ben": Example(
            "With the operator token",
            {"id": "ben", "kind": "subscriber", "token": "new-token-of-ben"},
            caller=OPERATOR,
            parameters={"id": "ben"},
        ),
    },
    "remove_subscription": {
        "fires": Example("By id", status=204, caller=ANNA, parameters={"id": "fires"}),
    },
    "forget_position": {"anna": Example("The caller's", status=204, caller=ANNA)},
    "unregister": {
        "anna": Example("The caller", status=204, caller=ANNA),
        "hub": Example("A gateway with its sources", status=204, caller=HUB, parameters={"sources": "true"}),
    },
}
