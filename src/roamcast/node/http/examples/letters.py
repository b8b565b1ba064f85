"""Anna gets letters: one with an event, two from Ben."""

from __future__ import annotations

from typing import Final

from roamcast.node.http.examples.values import ANNA, BEN, FIRE, PIPELINE, TIME, Example, Examples
from roamcast.node.http.schemas.errors import error_example

__all__ = ["LETTERS"]

_FIRE_LETTER = {
    "offset": 1,
    "sender": PIPELINE,
    "number": 1,
    "subscription": "fires",
    "why": 'in box(8, 53, 9, 54), has "fire"',
    "event": {"id": "mic-1:1", "source": "mic-1", "seq": 1, "time": TIME, **FIRE},
}
_HELLO = {"offset": 2, "sender": "local.node.ben", "number": 1, "title": "hello", "message": "See you at the pier"}

LETTERS: Final[Examples] = {
    "send_letters": {
        "letter": Example(
            "One letter",
            {"sender": "local.node.ben", "receiver": "local.node.anna", "number": 1, "new": True},
            202,
            caller=BEN,
            body={"to": "anna", "title": "hello", "message": "See you at the pier", "number": 1},
        ),
        "letters": Example(
            "Several letters. The second cannot arrive",
            {
                "sender": "local.node.ben",
                "letters": [
                    {"receiver": "local.node.anna", "number": 2, "new": True},
                    error_example(
                        "not_found",
                        "office 'west' has not joined",
                        "west.node.eve",
                        "check the receiver's name, or join its node",
                    ),
                ],
            },
            202,
            caller=BEN,
            body=[
                {"to": "local.node.anna", "message": {"pier": 4}, "ttl": 3600},
                {"to": "west.node.eve", "message": ""},
            ],
        ),
    },
    "show_last_number": {
        "anna": Example("To anna", {"receiver": "local.node.anna", "number": 2}, caller=BEN, parameters={"to": "anna"}),
    },
    "trace_letter": {
        "first": Example(
            "The first letter to anna",
            {"receiver": "local.node.anna", "number": 1, "state": "readable", "office": "local"},
            caller=BEN,
            parameters={"number": 1, "to": "anna"},
        ),
    },
    "pull_letters": {
        "two": Example(
            "Two letters; wait for the first",
            {"letters": [_FIRE_LETTER, _HELLO], "waiting": 3},
            caller=ANNA,
            parameters={"limit": 2, "wait": 10},
        ),
    },
    "create_mailbox_ticket": {
        "anna": Example("For a browser", {"ticket": "ticket-of-anna", "seconds": 60.0}, 201, caller=ANNA),
    },
    "stream_letters": {
        "ticket": Example(
            "With a ticket, after the first letter",
            'id: 2\nevent: letter\ndata: {"offset":2,"sender":"local.node.ben","number":1,"title":"hello",'
            '"message":"See you at the pier"}\n\n',
            parameters={"ticket": "ticket-of-anna", "after": 1},
        ),
    },
    "acknowledge_letters": {
        "first": Example("The first letter", {"acknowledged": 1}, caller=ANNA, body={"through": 1}),
    },
    "pull_mailboxes": {
        "two": Example(
            "Acknowledge and pull one mailbox; pull another with an invalid token",
            {
                "mailboxes": [
                    {
                        "letters": [{**_HELLO, "offset": 3, "number": 2, "title": "", "message": {"pier": 4}}],
                        "waiting": 1,
                    },
                    error_example(
                        "unauthenticated",
                        "unknown token",
                        "Authorization",
                        "use the token returned by the registration",
                    ),
                ]
            },
            body=[{"token": ANNA, "through": 2, "limit": 10}, {"token": "wrong"}],
        ),
    },
}
