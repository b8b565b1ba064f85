"""Contacts and messages over frames."""

from __future__ import annotations

from roamcast.collect.protocol.frames import Data, Result, Role, decode_frame
from roamcast.collect.protocol.link import Appeared, Arrived, Disappeared, Finished, Link, LinkEvent, LinkTimes

TIMES = LinkTimes(beacon=1_000, retry=300, silence=4_000)
BODY = bytes(range(256)) * 2
"""A message of eight fragments."""


def pair() -> tuple[Link, Link]:
    """Two links that have heard each other's beacon."""
    one, other = Link(1, 1, Role.SENSOR, TIMES, 0), Link(2, 1, Role.MULE, TIMES, 0)
    assert meet(one, other, 0) == [Appeared(1, Role.SENSOR)]
    return one, other


def meet(one: Link, other: Link, now: int) -> list[LinkEvent]:
    """Both send a beacon. Returns what the other notices."""
    list(one.wake(now)), list(other.wake(now))
    beacons = take(one), take(other)
    for frame in beacons[1]:
        list(one.hear(frame, now))
    return [event for frame in beacons[0] for event in other.hear(frame, now)]


def take(link: Link) -> list[bytes]:
    frames, link.frames = link.frames, []
    return frames


def hear(link: Link, frames: list[bytes], now: int, result: Result = Result.TAKEN) -> list[LinkEvent]:
    """Let a link hear frames, and acknowledge what arrives."""
    events = []
    for frame in frames:
        for event in link.hear(frame, now):
            events.append(event)
            if isinstance(event, Arrived):
                link.acknowledge(event.peer, result)
    return events


def test_a_message_arrives_and_is_acknowledged() -> None:
    one, other = pair()
    one.send(2, BODY, 10, token="token")
    assert hear(other, take(one), 20) == [Arrived(1, Role.SENSOR, BODY, 20)]
    assert hear(one, take(other), 30) == [Finished(2, "token", Result.TAKEN)]
    assert one.is_idle(2)


def test_only_missing_fragments_are_repeated() -> None:
    """The receiver says which have arrived."""
    one, other = pair()
    one.send(2, BODY, 0)
    frames = take(one)
    assert len(frames) == 8
    assert hear(other, frames[:2] + frames[4:], 10) == []
    hear(one, take(other), 10)
    again = take(one)
    assert [data.index for data in map(decode_frame, again) if isinstance(data, Data)] == [2, 3]
    assert hear(other, again, 20) == [Arrived(1, Role.SENSOR, BODY, 10)]


def test_a_repeated_message_arrives_once_and_gets_the_same_answer() -> None:
    """The acknowledgement was lost."""
    one, other = pair()
    one.send(2, b"event", 0, token="token")
    hear(other, take(one), 10, Result.FULL)
    take(other)
    list(one.wake(400))
    assert hear(other, take(one)[-1:], 400) == []
    assert hear(one, take(other), 410) == [Finished(2, "token", Result.FULL)]


def test_a_contact_that_broke_off_is_resumed() -> None:
    """Fragments that arrived in the first contact count, and so does the time between the two."""
    one, other = pair()
    one.send(2, BODY, 0, token="token")
    hear(other, take(one)[:5], 10)
    assert Disappeared(2, Role.MULE) in list(one.wake(5_000))
    assert Disappeared(1, Role.SENSOR) in list(other.wake(5_000))
    assert one.suspended(2) == "token"
    take(one), take(other)
    assert meet(one, other, 60_000) == [Appeared(1, Role.SENSOR)]
    one.resume(2, 60_000, is_wanted=True)
    frames = take(one)
    assert hear(other, frames[5:], 60_000) == [Arrived(1, Role.SENSOR, BODY, 0)]
    assert hear(one, take(other), 60_000) == [Finished(2, "token", Result.TAKEN)]


def test_what_nobody_wants_any_more_is_not_resumed() -> None:
    """The next message takes its place."""
    one, other = pair()
    one.send(2, BODY, 0, token="old")
    hear(other, take(one)[:5], 10)
    list(one.wake(5_000)), list(other.wake(5_000))
    take(one), take(other)
    meet(one, other, 6_000)
    one.resume(2, 6_000, is_wanted=False)
    one.send(2, b"new", 6_000, token="new")
    assert hear(other, take(one), 6_000) == [Arrived(1, Role.SENSOR, b"new", 6_000)]


def test_a_restart_ends_the_contact_and_begins_another() -> None:
    one, other = pair()
    one.send(2, BODY, 0)
    hear(other, take(one)[:5], 10)
    again = Link(1, 2, Role.SENSOR, TIMES, 100)
    list(again.wake(100))
    assert hear(other, take(again), 100) == [Disappeared(1, Role.SENSOR), Appeared(1, Role.SENSOR)]


def test_late_frames_of_an_earlier_incarnation_are_ignored() -> None:
    one, other = pair()
    one.send(2, b"late", 0)
    late = take(one)
    again = Link(1, 2, Role.SENSOR, TIMES, 100)
    list(again.wake(100))
    hear(other, take(again), 100)
    assert hear(other, late, 200) == []


def test_a_newer_message_with_the_same_key_replaces_one_that_waits() -> None:
    one, other = pair()
    for number in range(4):
        one.send(2, bytes([number]), 0, key="status")
    arrived = []
    for _ in range(4):
        arrived += [event.body for event in hear(other, take(one), 10) if isinstance(event, Arrived)]
        hear(one, take(other), 10)
    assert arrived == [b"\0", b"\3"]
