"""Compares responses with a scan of all announcements ever made."""

from __future__ import annotations

import pytest
from backbones import Registry, source_request
from hypothesis import given
from hypothesis import strategies as st
from profiles import thorough

from roamcast.bind.discovery.announcer import Announcer
from roamcast.bind.discovery.cells import Cell
from roamcast.bind.discovery.messages import (
    AnnouncementCursor,
    DiscoveryInterest,
    DiscoveryRequest,
    SourceAnnouncement,
    SourceRequest,
)
from roamcast.model import Position

ALL = DiscoveryInterest(frozenset([source_request("bind", "")]))
MAX_SIZE = 3


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["put", "remove"]), st.integers(0, 7)),
            st.tuples(st.just("request"), st.integers(0, 40)),
        ),
        max_size=60,
    )
)
@thorough()
def test_a_response_equals_a_scan_of_all_announcements(steps: list[tuple[str, int]]) -> None:
    """In the order of numbers, for any cursor, also for late requests; removals only if the requester may know them."""
    registry = Registry()
    announcer = Announcer("there", 1, registry, max_size=MAX_SIZE)
    announcer.respond(DiscoveryRequest("here", 1, 1, ALL, AnnouncementCursor()))
    numbers: dict[str, int] = {}
    number = highest = 0
    for action, value in steps:
        id = f"s{value}"
        if action == "request":
            after = min(value, number)
            highest = max(highest, after)
            response = announcer.respond(DiscoveryRequest("here", 1, 1, None, AnnouncementCursor(1, after)))
            expected = sorted(
                (last, source)
                for source, last in numbers.items()
                if last > after and (source in registry.sources or (after and last > highest))
            )
            assert [source.source for source in response.announcements] == [source for _, source in expected[:MAX_SIZE]]
            assert [source.attributes is None for source in response.announcements] == [
                source not in registry.sources for _, source in expected[:MAX_SIZE]
            ]
            assert response.more == (len(expected) > MAX_SIZE)
            assert response.cursor == AnnouncementCursor(1, expected[MAX_SIZE - 1][0] if response.more else number)
            continue
        if action == "put":
            registry.sources[id] = SourceAnnouncement(id, {}, Position(id, 0, 0, 1))
        elif registry.sources.pop(id, None) is None:
            continue
        number += 1
        numbers[id] = number
        announcer.announce([id])


def test_sources_in_many_cells_are_considered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regions overlap: a peer may have 1,000 of them around each of 100,000 sources."""
    registry = Registry()
    for number in range(10):
        registry.sources[f"s{number}"] = SourceAnnouncement(f"s{number}", {}, Position(f"s{number}", number, 0, 1))
    considered: list[object] = []

    def accepts(_: SourceRequest, attributes: object) -> bool:
        considered.append(attributes)
        return True

    monkeypatch.setattr(SourceRequest, "accepts", accepts)
    cells = [Cell(level, 0, 0) for level in range(2, 12)]
    concerned = Announcer("there", 1, registry).concerned_by([SourceRequest("match", "", cell) for cell in cells])
    assert (concerned, len(considered)) == (set(registry.sources), 10)
