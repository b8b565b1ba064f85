"""A sensor's node: duty cycle, restarts, and events that pass through."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roamcast.collect.protocol.codec import encode
from roamcast.collect.protocol.communities import Community
from roamcast.collect.protocol.energy import EnergyAccount, Radio
from roamcast.collect.protocol.events import EventId, FieldEvent
from roamcast.collect.protocol.field_node import DutyCycle, FieldNode, NodeSettings
from roamcast.collect.protocol.frames import CHUNK_BYTES, MAX_FRAGMENTS, Beacon, Role, encode_frame
from roamcast.collect.protocol.messages import PutBack
from roamcast.collect.protocol.node_core import NodeCore
from roamcast.collect.protocol.policy import CollectPolicy
from roamcast.collect.protocol.rules import CET
from roamcast.errors import InputError

POLICY = CollectPolicy.of(CET(K=2), 1000.0, 250.0)
CHAIN = Community({1: (0, 0), 2: (1, 0), 3: (2, 0)})
SETTINGS = NodeSettings(1, CHAIN, POLICY, beta=60_000)
EVENT = FieldEvent(EventId(9, 1, 1), 9, 1, 0, 5_000, b"smoke")


def core(me: int) -> NodeCore:
    return NodeCore(me, CHAIN, POLICY, EnergyAccount(Radio(), 10.0))


def test_a_sensor_that_sleeps_hears_nothing() -> None:
    """It is awake for 1.5 of 3 seconds."""
    node = FieldNode(replace(SETTINGS, duty=DutyCycle(3_000, 1_500)))
    assert [node.listens(at) for at in (0, 1_499, 1_500, 2_999, 3_000)] == [True, True, False, False, True]
    mule = encode_frame(Beacon(1001, 1, Role.MULE))
    node.hear(mule, 2_000)
    assert node.core.mules == []
    node.hear(mule, 3_000)
    assert node.core.mules == [1001]


@pytest.mark.parametrize("duty", [DutyCycle(3_000, 500), DutyCycle(5_000, 1_500), DutyCycle(1_000, 1_500)])
def test_a_duty_cycle_that_would_miss_beacons_is_refused(duty: DutyCycle) -> None:
    with pytest.raises(InputError, match="duty cycle"):
        replace(SETTINGS, duty=duty)


def test_a_sensor_has_to_be_in_its_community() -> None:
    with pytest.raises(InputError, match="not in its community"):
        replace(SETTINGS, me=4)


def test_an_event_that_no_message_has_room_for_is_refused_at_birth() -> None:
    node = FieldNode(SETTINGS)
    with pytest.raises(InputError, match="3,501 bytes"):
        node.sense(bytes(3_501), 0)
    assert node.core.counts["created"] == 0


def test_the_longest_event_fits_with_the_longest_route() -> None:
    longest = replace(EVENT, content=bytes(3_500))
    body = encode(PutBack(longest, 1, 1001, tuple(range(255))), 0)
    assert len(body) + 4 <= CHUNK_BYTES * MAX_FRAGMENTS


def test_a_restart_continues() -> None:
    """Queue, energy and counts stay; ids are never used again."""
    node = FieldNode(SETTINGS)
    first = node.sense(b"one", 0)
    again = FieldNode(SETTINGS, node.state(), 100)
    second = again.sense(b"two", 200)
    assert [copy.event for copy in again.core.queue.copies] == [first, second]
    assert (first.id, second.id) == (EventId(1, 1, 1), EventId(1, 2, 2))
    assert again.core.counts["created"] == 2


def test_an_event_for_a_full_keeper_stays_with_the_last_node_that_has_room() -> None:
    given, middle, keeper = PutBack(EVENT, 1, 1001, (2, 3)), core(2), core(3)
    for number in (1, 2):
        keeper.sense(replace(EVENT, id=EventId(3, 1, number)), 0)
    assert middle.receive(given, 0) is None
    onward = middle.pass_on()
    assert onward is not None
    assert keeper.receive(onward.transfer, 0) == "full"
    middle.refused(onward, 0)
    assert ([copy.event for copy in middle.queue.copies], middle.passing) == ([EVENT], [])


def test_an_event_that_expires_on_its_way_is_counted() -> None:
    node = core(2)
    node.receive(PutBack(EVENT, 1, 1001, (2, 3)), 0)
    node.advance(5_000)
    assert (node.pass_on(), node.counts["expired_in_transit"]) == (None, 1)


def test_an_event_with_a_route_that_leads_elsewhere_is_refused() -> None:
    assert core(2).receive(PutBack(EVENT, 1, 1001, (1, 3)), 0) == "unwanted"
