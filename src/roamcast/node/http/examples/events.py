"""The microphone publishes."""

from __future__ import annotations

from typing import Final

from roamcast.node.http.examples.values import FIRE, MIC, TIME, Example, Examples

__all__ = ["EVENTS"]

EVENTS: Final[Examples] = {
    "reserve_numbers": {"ten": Example("Ten", {"first": 1, "count": 10}, caller=MIC, body={"count": 10})},
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
    },
    "show_demand": {"microphone": Example("Somebody needs its events", {"demanded": True}, caller=MIC)},
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
