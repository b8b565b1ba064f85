"""Test vectors of the field protocol; run as a script, this writes them to docs/collect-protocol-vectors.json."""

from __future__ import annotations

import json
import pathlib
from dataclasses import fields, is_dataclass
from enum import IntEnum
from typing import Any

from roamcast.collect.protocol.codec import Said, encode
from roamcast.collect.protocol.communities import Community
from roamcast.collect.protocol.events import EventId, FieldEvent
from roamcast.collect.protocol.field_node import FieldNode, NodeSettings
from roamcast.collect.protocol.frames import Ack, Beacon, Data, Frame, Result, Role, encode_frame
from roamcast.collect.protocol.messages import (
    Answer,
    Bid,
    Call,
    CellEntry,
    Grant,
    Handover,
    Have,
    Hello,
    KeeperQuery,
    Kept,
    NewHead,
    Nothing,
    Offer,
    Path,
    Poll,
    PutBack,
    Relay,
    Status,
    Stop,
)
from roamcast.collect.protocol.mule import Mule, MuleSettings
from roamcast.collect.protocol.policy import CollectPolicy
from roamcast.collect.protocol.rules import CET

__all__ = ["FRAMES", "MESSAGES", "NOW", "PATH", "describe", "make_mule", "make_sensor", "make_vectors"]

PATH = "docs/collect-protocol-vectors.json"
NOW = 1_000_000
"""The time of encoding, on the clock of whoever encodes."""

EVENT_ID = EventId(7, 2, 41)
EVENT = FieldEvent(EVENT_ID, 3, 2, NOW - 1_500, NOW + 1_998_500, b"smoke")
FRAMES: tuple[Frame, ...] = (
    Beacon(7, 2, Role.SENSOR),
    Beacon(1001, 1, Role.MULE),
    Data(7, 2, 1001, 5, 0, 2, 250, bytes(range(73))),
    Data(7, 2, 1001, 5, 1, 2, 250, b"rest"),
    Ack(1001, 1, 7, 2, 5, Result.PARTIAL, 0b01),
    Ack(1001, 1, 7, 2, 5, Result.TAKEN, 0),
    Ack(7, 2, 1001, 1, 9, Result.FULL, 0),
)
MESSAGES: tuple[Said, ...] = (
    Hello(3, False),
    CellEntry(),
    Poll(),
    Nothing(),
    Offer(12, (EVENT_ID, EventId(8, 1, 2))),
    Answer(12, EVENT_ID, (7, 9, 4)),
    Answer(13, None, ()),
    Path(1001, 4, (Stop((2, 3), NOW, NOW + 9_000), Stop(7, NOW + 500, NOW + 800))),
    Have(1001, 5, (EVENT_ID,)),
    Status(7, (2 << 32) + 1, (1001, 1002), True),
    Call(3, 2),
    Bid(7, 2, 9.75),
    NewHead(9, 2, False),
    KeeperQuery(7, 1001, 12, (EVENT_ID,)),
    Grant(7, 1001, 12, EVENT_ID, (7, 9)),
    Grant(7, 1001, 13, None, ()),
    Kept(EVENT_ID, NOW + 60_000),
    Handover(EVENT, 1),
    Relay(EVENT, 2, 1001, 3),
    PutBack(EVENT, 4, 1001, (7, 9)),
)


def describe(value: object) -> Any:
    """A value as JSON: of a dataclass its type and fields, of bytes their hex digits."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"type": type(value).__name__} | {f.name: describe(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, IntEnum):
        return value.name
    if isinstance(value, EventId):
        return value._asdict()
    if isinstance(value, tuple):
        return [describe(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value


def make_sensor() -> FieldNode:
    """An isolated sensor, as in the conversation."""
    policy = CollectPolicy.of(CET(), 1000.0, 250.0)
    return FieldNode(NodeSettings(7, Community({7: (2, 3)}), policy, 2_000_000), now=NOW)


def make_mule() -> Mule:
    return Mule(MuleSettings(1001, CollectPolicy.of(CET(), 1000.0, 250.0), lambda event: True), now=NOW)


def make_vectors() -> dict[str, Any]:
    """All vectors."""
    return {
        "format": "roamcast-field-vectors/1",
        "now": NOW,
        "frames": [{"hex": encode_frame(frame).hex(), "frame": describe(frame)} for frame in FRAMES],
        "messages": [{"hex": encode(said, NOW).hex(), "message": describe(said)} for said in MESSAGES],
        "not_frames": [{"hex": bad.hex(), "why": why} for bad, why in _bad_frames()],
        "conversation": _converse(),
    }


def _bad_frames() -> list[tuple[bytes, str]]:
    good = encode_frame(FRAMES[3])
    flipped = good[:20] + bytes([good[20] ^ 1]) + good[21:]
    return [
        (good[:-1], "truncated"),
        (good + b"\0", "too long"),
        (flipped, "one bit is wrong"),
        (bytes([2]) + good[1:], "another version"),
        (b"", "empty"),
        (encode_frame(Data(7, 2, 1001, 5, 2, 2, 0, b"")), "fragment 2 of 2: they are numbered from 0"),
        (encode_frame(Data(7, 2, 1001, 5, 0, 65, 0, b"")), "65 fragments: the maximum is 64"),
    ]


def _converse() -> list[dict[str, Any]]:
    """A mule meets a sensor that has one event of two fragments; the second fragment is lost once."""
    sensor, mule = make_sensor(), make_mule()
    steps: list[dict[str, Any]] = []
    sensor.sense(bytes(100), NOW)
    steps.append({"at": NOW, "senses": bytes(100).hex(), "sends": _hex(sensor)})
    to_mule: list[bytes] = []
    lost = False
    for at in range(NOW, NOW + 700, 50):
        sensor.wake(at)
        sent = sensor.take_frames()
        steps.append({"at": at, "wakes": True, "sends": [frame.hex() for frame in sent]})
        to_mule += sent
        mule.wake(at)
        for frame in to_mule:
            mule.hear(frame, at)
        to_mule.clear()
        for frame in mule.take_frames():
            sensor.hear(frame, at)
            sent = sensor.take_frames()
            steps.append({"at": at, "hears": frame.hex(), "sends": [frame.hex() for frame in sent]})
            if not lost and sum(len(frame) > 50 for frame in sent) == 2:
                lost, sent = True, sent[:1]
            to_mule += sent
    assert mule.core.cargo
    return steps


def _hex(sensor: FieldNode) -> list[str]:
    return [frame.hex() for frame in sensor.take_frames()]


if __name__ == "__main__":
    pathlib.Path(PATH).write_text(json.dumps(make_vectors(), indent=1) + "\n")
