"""Bindings of tracks equal what a simple model binds at each time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pytest
from binding import Thing, World, places, query
from hypothesis import given
from hypothesis import strategies as st

from roamcast.bind.tracks import Fix, PastBinding, TrackReplay
from roamcast.space import GEOGRAPHIC, PLANAR, Space

ROOMS = {"hall": (0.0, 0.0, 2.0, 4.0)}
QUERIES = (
    "Select Where &location in nearest",
    "Select Where &kind = bus and &location in nearest(2)",
    "Select nearof() Where &location in rang:loc({r})",
    "Select remoteof() Where not &kind = bus and &location in rang:loc({r})",
    "Select anyof() Where &location in rang:loc({r})",
    "Select Where &location in nearest Life-control #location in hall",
    "Select Where &location in nearest Life-control #role = guard or #location not in hall",
)
SPACES: Sequence[tuple[Space, float]] = ((PLANAR, 2.0), (GEOGRAPHIC, 250_000.0))

_at = st.integers(0, 4).map(float)
_fixes = st.lists(
    st.tuples(
        st.integers(0, 8),
        st.sampled_from(["source a", "source b", "source c", "subscriber a", "subscriber b"]),
        _at,
        _at,
        st.sampled_from([{}, {"kind": "bus"}, {"kind": 1}, {"role": "guard"}]),
    ),
    max_size=25,
)


def replay(
    subscriptions: Sequence[tuple[str, str, str]], fixes: Sequence[tuple[int, str, float, float, Any]], space: Space
) -> list[PastBinding]:
    parsed = [(id, subscriber, query(text)) for id, subscriber, text in subscriptions]
    tracks = TrackReplay(parsed, space, places(space, **ROOMS))
    found = []
    for now, group in groupby(sorted(fixes, key=lambda fix: fix[0]), key=lambda fix: fix[0]):
        sides: dict[str, list[Fix]] = {"source": [], "subscriber": []}
        for _, name, x, y, attributes in group:
            side, id = name.split()
            sides[side].append(Fix(id, x, y, attributes))
        found += tracks.step(now, sides["source"], sides["subscriber"])
    return [*found, *tracks.finish()]


@given(
    texts=st.lists(st.sampled_from(QUERIES), min_size=1, max_size=5),
    owners=st.lists(st.sampled_from("ab"), min_size=5, max_size=5),
    fixes=_fixes,
    which=st.sampled_from(SPACES),
)
def test_bindings_are_those_of_a_model_at_each_time(
    texts: list[str], owners: list[str], fixes: list[tuple[int, str, float, float, Any]], which: tuple[Space, float]
) -> None:
    """All fixes with one time count together. For anyof() the source must qualify, and there is one if any does."""
    space, radius = which
    subscriptions = [
        (str(n), owner, text.format(r=radius)) for n, (text, owner) in enumerate(zip(texts, owners, strict=False))
    ]
    bindings = replay(subscriptions, fixes, space)
    assert all(each.end is None or each.begin < each.end for each in bindings)
    world = World(space, ROOMS)
    world.subscribers = {f"subscriber {owner}": Thing({}) for owner in "ab"}
    world.subscriptions = {id: (f"subscriber {owner}", query(text)) for id, owner, text in subscriptions}
    for now in range(10):
        for time, name, x, y, attributes in fixes:
            if time == now:
                things = world.sources if name.startswith("source") else world.subscribers
                things.setdefault(name, Thing({}))
                world.move(name, x, y, now)
                things[name].attributes = attributes
        for id, _, text in subscriptions:
            bound = [f"source {b.source}" for b in bindings if b.subscription == id and covers(b, now)]
            assert len(set(bound)) == len(bound)
            if "anyof" in text:
                qualifying = {source for _, source in world.qualifying(id)}
                assert len(bound) == bool(qualifying)
                assert qualifying.issuperset(bound)
            else:
                assert set(bound) == world.chosen(id)


def covers(binding: PastBinding, now: int) -> bool:
    return binding.begin <= now and (binding.end is None or now < binding.end)


def test_anyof_keeps_its_source() -> None:
    """As long as it qualifies."""
    fixes: list[tuple[int, str, float, float, Any]] = [
        (0, "subscriber a", 0.0, 0.0, {}), (1, "source a", 2.0, 0.0, {}), (2, "source b", 0.0, 0.0, {}),
        (3, "source a", 9.0, 0.0, {}), (4, "source a", 0.0, 0.0, {}),
    ]  # fmt: skip
    anyof = [("s", "a", "Select anyof() Where &location in rang:loc(3)")]
    assert replay(anyof, fixes, PLANAR) == [PastBinding("s", "a", 1, 3), PastBinding("s", "b", 3, None)]


def test_what_happens_at_one_time_happens_together() -> None:
    """A binding that lasts no time is not one, and one that is interrupted for no time goes on."""
    nearest = [("s", "a", "Select Where &location in nearest Life-control #role = guard")]
    fixes: list[tuple[int, str, float, float, Any]] = [
        (0, "subscriber a", 0.0, 0.0, {"role": "guard"}), (0, "source a", 1.0, 0.0, {}), (0, "source b", 2.0, 0.0, {}),
        (5, "source a", 3.0, 0.0, {"kind": "bus"}), (5, "source b", 4.0, 0.0, {}), (5, "subscriber a", 3.0, 0.0, {}),
        (7, "subscriber a", 4.0, 0.0, {"role": "guard"}), (7, "source c", 4.0, 0.0, {}), (7, "source c", 9.0, 0.0, {}),
    ]  # fmt: skip
    assert replay(nearest, fixes, PLANAR) == [PastBinding("s", "a", 0, 5), PastBinding("s", "b", 7, None)]


@pytest.mark.parametrize("space", [PLANAR, GEOGRAPHIC])
def test_subscribers_without_fixes_are_not_bound(space: Space) -> None:
    """Nor are those of nobody's subscription."""
    assert (
        replay(
            [("s", "a", "Select Where &location in nearest")],
            [(0, "source a", 0.0, 0.0, {}), (1, "subscriber b", 0.0, 0.0, {})],
            space,
        )
        == []
    )
