"""Offices, the scene and the state of the node."""

from __future__ import annotations

from typing import Final

from roamcast.node.http.examples.values import OPERATOR, TIME, Example, Examples

__all__ = ["NODES"]

_POINT = {"geometry": {"type": "Point", "coordinates": [8.5, 53.5]}, "label": "Fire brigade", "kind": "boat"}

NODES: Final[Examples] = {
    "list_offices": {
        "one peer": Example(
            "This office and one peer",
            {
                "domain": "local",
                "url": "http://127.0.0.1:8080",
                "at": [8.5, 53.5],
                "offices": [
                    {
                        "domain": "south",
                        "url": "http://south.example:8080",
                        "at": None,
                        "reachable": False,
                        "last_response_at": None,
                    }
                ],
            },
        ),
    },
    "find_nearest_office": {
        "point": Example(
            "To a point",
            {"domain": "local", "url": "http://127.0.0.1:8080", "at": [8.5, 53.5]},
            parameters={"x": 8.1, "y": 53.0},
        ),
    },
    "invite_office": {
        "west": Example(
            "Invite west",
            {"domain": "west", "invitation": "invitation-of-west"},
            caller=OPERATOR,
            body={"domain": "west"},
        ),
    },
    "expel_office": {"south": Example("Expel south", status=204, caller=OPERATOR, parameters={"domain": "south"})},
    "change_scene": {
        "boats": Example(
            "Show a boat for a minute",
            {"set": 1},
            caller=OPERATOR,
            body={"layer": "boats", "set": {"boat-1": _POINT}, "ttl": 60},
        ),
    },
    "show_scene": {
        "boats": Example(
            "With a layer of boats",
            {
                "title": "domain local",
                "space": "geographic",
                "layers": {"boats": {"boat-1": _POINT}},
                "counters": {"events_accepted": 3},
            },
        ),
    },
    "stream_scene": {
        "boats": Example(
            "A snapshot, then changes",
            'event: snapshot\ndata: {"title":"domain local","space":"geographic","layers":{},"counters":{}}\n\n'
            'event: change\ndata: {"layer":"boats","set":{},"remove":["boat-1"]}\n\n',
        ),
    },
    "show_health": {
        "degraded": Example(
            "No pipeline is running",
            {
                "status": "degraded",
                "problems": [{"kind": "no_pipeline", "since": TIME, "detail": "no pipeline has reported"}],
                "domain": "local",
                "space": "geographic",
                "lag": {"records": 3, "seconds": 12.5},
                "pipeline": None,
            },
            207,
        ),
    },
    "show_liveness": {"live": Example("It runs", {"status": "ok"})},
    "show_readiness": {"ready": Example("It is ready", {"status": "ok", "problems": []})},
    "show_metrics": {
        "text": Example(
            "In the Prometheus format",
            "# HELP roamcast_problems Problems of this node.\n# TYPE roamcast_problems gauge\nroamcast_problems 0.0\n",
        ),
    },
}
