"""Anna subscribes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from roamcast.node.http.examples.values import ANNA, BEN, FIRE, TIME, Example, Examples
from roamcast.node.http.schemas.errors import error_example

__all__ = ["SUBSCRIPTIONS"]

_NEAR = "Select Where &context = noise and &location in nearest\nOn @ > 50"
_FIRES: Mapping[str, object] = {
    "id": "fires",
    "subscriber": "anna",
    "lacl": 'Select all() Where &location in box(8, 53, 9, 54) and &terms has ("fire")',
    "plan": "match",
    "state": "active",
    "sources": [],
    "since": TIME,
    "why": None,
    "peers": [],
}

SUBSCRIPTIONS: Final[Examples] = {
    "add_subscriptions": {
        "box": Example(
            "All events with a term inside a box",
            {"id": "fires"},
            201,
            caller=ANNA,
            body={"id": "fires", "box": [8, 53, 9, 54], "terms": ["fire"]},
        ),
        "again": Example(
            "The same again: nothing changes",
            {"id": "fires"},
            200,
            caller=ANNA,
            body={"id": "fires", "box": [8, 53, 9, 54], "terms": ["fire"]},
        ),
        "lacl": Example(
            "The loud events of the nearest microphone, as LACL",
            {"id": "near"},
            201,
            caller=ANNA,
            body={"id": "near", "lacl": _NEAR},
        ),
        "antimeridian": Example(
            "A box across the antimeridian. The node chooses the id",
            {"id": "71f29e6e24204acca0956de0fd253240"},
            201,
            caller=BEN,
            body={"box": [177, -20, -178, -15], "crosses_antimeridian": True},
        ),
        "list": Example(
            "Several subscriptions. The id of the second belongs to somebody else",
            {
                "added": 1,
                "existing": 0,
                "refused": 1,
                "subscriptions": [
                    {"id": "floods", "new": True},
                    {
                        "id": "fires",
                        **error_example(
                            "conflict", "this subscription id is already in use", "fires", "choose another id"
                        ),
                    },
                ],
            },
            200,
            caller=BEN,
            body=[{"id": "floods", "terms": ["flood"]}, {"id": "fires", "terms": ["fire"]}],
        ),
    },
    "replace_subscription": {
        "floods": Example(
            "Another query",
            {"id": "floods", "replaced": True},
            caller=BEN,
            parameters={"id": "floods"},
            body={"box": [8, 53, 9, 54], "terms": ["flood"]},
        ),
    },
    "remove_subscriptions": {
        "two": Example(
            "Two of them, of which one does not exist",
            {
                "removed": 1,
                "refused": 1,
                "subscriptions": [
                    {"id": "floods"},
                    {
                        "id": "storms",
                        **error_example(
                            "not_found",
                            "no subscription with this id",
                            "storms",
                            "list your subscriptions to see their ids",
                        ),
                    },
                ],
            },
            caller=BEN,
            body={"ids": ["floods", "storms"]},
        ),
    },
    "list_subscriptions": {
        "first": Example(
            "The first of them",
            {"subscriptions": [_FIRES], "more": True},
            caller=ANNA,
            parameters={"limit": 1},
        ),
    },
    "show_subscription": {"fires": Example("By id", _FIRES, caller=ANNA, parameters={"id": "fires"})},
    "explain_match": {
        "fires": Example(
            "An event that would match",
            {
                "subscription": "fires",
                "matches": True,
                "checks": [
                    {"check": "region", "holds": True, "why": "8.5, 53.5 is in box(8, 53, 9, 54)"},
                    {"check": "terms", "holds": True, "why": 'has "fire"'},
                ],
            },
            caller=ANNA,
            parameters={"id": "fires"},
            body=FIRE,
        ),
    },
    "list_bindings": {
        "near": Example(
            "By the subscription's id",
            {"bindings": [{"source": "mic-1", "bound_at": TIME, "unbound_at": None}], "more": False},
            caller=ANNA,
            parameters={"id": "near"},
        ),
    },
}
