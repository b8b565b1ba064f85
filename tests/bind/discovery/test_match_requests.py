"""Requests of plan match: exact while there are few, larger cells when there are many."""

from __future__ import annotations

from collections import Counter

from backbones import may_be_in, source_request
from hypothesis import given
from hypothesis import strategies as st

from roamcast.bind.discovery.cells import Cell
from roamcast.bind.discovery.match_requests import MatchRequests
from roamcast.bind.discovery.messages import SourceAnnouncement, SourceRequest
from roamcast.model import Position

CONDITIONS = [source_request("match", text) for text in ("&context = noise", "&context = light", "")]
CELLS = st.one_of(st.none(), st.builds(Cell, st.integers(-3, 4), st.integers(-40, 40), st.integers(-40, 40)))
REQUESTS = st.builds(lambda request, cell: request._replace(cell=cell), st.sampled_from(CONDITIONS), CELLS)
SOURCES = st.builds(
    lambda context, at: SourceAnnouncement("s", {"context": context}, at and Position("s", *at, 1)),
    st.sampled_from(["noise", "light", "heat"]),
    st.one_of(st.none(), st.tuples(st.integers(-50, 50), st.integers(-50, 50))),
)
CHANGES = st.lists(st.tuples(REQUESTS, st.booleans()), max_size=60)


def admits(request: SourceRequest, source: SourceAnnouncement) -> bool:
    is_there = request.cell is None or may_be_in(source, request.cell)
    return is_there and request.accepts(source.attributes or {})


def applied(most: int, changes: list[tuple[SourceRequest, bool]]) -> tuple[MatchRequests, Counter[SourceRequest]]:
    """Requests are added, and removed if they are there."""
    requests, expected = MatchRequests(most), Counter[SourceRequest]()
    for request, is_added in changes:
        if is_added or expected[request]:
            before = set(requests.requests)
            requests.changed.clear()
            requests.add(request, 1 if is_added else -1)
            expected[request] += 1 if is_added else -1
            assert requests.changed >= before ^ set(requests.requests)
    return requests, +expected


@given(CHANGES, SOURCES)
def test_few_requests_are_exact(changes: list[tuple[SourceRequest, bool]], source: SourceAnnouncement) -> None:
    requests, expected = applied(1_000, changes)
    assert set(requests.requests) == set(expected)
    assert requests.admits(source) == any(admits(request, source) for request in expected)


@given(CHANGES, SOURCES)
def test_many_requests_admit_no_less(changes: list[tuple[SourceRequest, bool]], source: SourceAnnouncement) -> None:
    """They are as few as asked for, if larger cells can achieve that; nothing is left when all are gone."""
    requests, expected = applied(5, changes)
    conditions = {request.condition for request in expected}
    assert len(requests.requests) <= max(5, len(conditions))
    assert {request.condition for request in requests.requests} == conditions
    if any(admits(request, source) for request in expected):
        assert requests.admits(source)
    assert requests.admits(source) == any(admits(request, source) for request in requests.requests)
    for request, count in expected.items():
        requests.add(request, -count)
    assert not requests.requests
    assert not requests.admits(source)


def test_cells_are_small_again_after_all_requests_are_gone() -> None:
    small = [SourceRequest("match", "", Cell(0, at, 0)) for at in range(10)]
    requests = MatchRequests(5)
    for request in small:
        requests.add(request, 1)
    assert not set(small) & set(requests.requests)
    for request in small:
        requests.add(request, -1)
    requests.add(small[0], 1)
    assert set(requests.requests) == {small[0]}
