"""The microphone and the gateway publish."""

from __future__ import annotations

from typing import Final

from roamcast.node.http.examples.values import FIRE, HUB, MIC, TIME, Example, Examples

__all__ = ["EVENTS"]

EVENTS: Final[Examples] = {
    "reserve_numbers": {
        "ten": Example("Ten", {"first": 1, "count": 10}, caller=MIC, body={"count": 10}),
        "gateway": Example(
            "For two sources of a gateway",
            {"sources": {"meter-1": {"first": 1, "count": 2}, "meter-2": {"first": 1, "count": 1}}},
            caller=HUB,
            body={"sources": {"meter-1": 2, "meter-2": 1}},
        ),
    },
    "publish_events": {
        "event": Example(
            "One event", {"accepted": 1, "first_seq": 1, "last_seq": 1}, 202, caller=MIC, body={"seq": 1, **FIRE}
        ),
        "events": Example(
            "Several events where the source is, of which one was published before",
            {"accepted": 2, "first_seq": 1, "last_seq": 2},
            202,
            caller=MIC,
            body=[{"seq": 1, **FIRE}, {"seq": 2, "readings": {"loudness": 55.5}, "time": TIME}],
        ),
        "gateway": Example(
            "A gateway publishes for two of its sources",
            {
                "accepted": 2,
                "first_seq": 1,
                "last_seq": 1,
                "sources": [
                    {"source": "meter-1", "first_seq": 1, "last_seq": 1},
                    {"source": "meter-2", "first_seq": 1, "last_seq": 1},
                ],
            },
            202,
            caller=HUB,
            body=[
                {"source": "meter-1", "seq": 1, "readings": {"level": 1.5}},
                {"source": "meter-2", "seq": 1, "readings": {"level": 2.5}},
            ],
        ),
    },
    "show_demand": {
        "microphone": Example("Somebody needs its events", {"demanded": True}, caller=MIC),
        "gateway": Example(
            "Somebody needs the events of one of its sources",
            {"demanded": True, "sources": {"meter-1": True, "meter-2": False}},
            caller=HUB,
        ),
    },
    "create_demand_ticket": {
        "microphone": Example("For a browser", {"ticket": "ticket-of-mic-1", "seconds": 60.0}, 201, caller=MIC),
    },
    "stream_demand": {
        "ticket": Example(
            "With a ticket",
            'event: demand\ndata: {"demanded": true}\n\n',
            parameters={"ticket": "ticket-of-mic-1"},
        ),
    },
}
