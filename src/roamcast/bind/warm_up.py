"""Compiles the kernels that a node needs for its first requests, or loads them from numba's cache."""

from __future__ import annotations

from roamcast.bind.lcesm.binder import Binder
from roamcast.bind.lcesm.messages import SourceRegistered, SourceRemoved, Subscribed, SubscriberRegistered
from roamcast.compiled import expect_compilation
from roamcast.lacl import check, parse
from roamcast.model import Position
from roamcast.space import GEOGRAPHIC

__all__ = ["warm_up"]


def warm_up() -> None:
    """Register sources and a subscriber, subscribe to the nearest source and to any, move, and remove the sources.

    Two sources are equally near at first: that takes another kernel. Both spaces share compiled kernels.
    """
    with expect_compilation():
        binder = Binder(GEOGRAPHIC)
        sources = [f"source-{number}" for number in range(40)]
        for number, id in enumerate(sources):
            binder.handle(SourceRegistered(id, {}, Position(id, number * 1e-4, 0.0, 1)), 1)
        binder.handle(SubscriberRegistered("subscriber", {}, Position("subscriber", 5e-5, 0.0, 1)), 1)
        for text in ("Select Where &location in nearest", "Select anyof() Where &location in rang:loc(1 km)"):
            binder.handle(Subscribed(text, "subscriber", check(parse(text))), 2)
        for time in range(3, 6):
            x = [1e-4 * (time + number) for number in range(len(sources) + 1)]
            binder.handle_moves([*sources, "subscriber"], x, x, [time] * len(x), time)
        for source in sources:
            binder.handle(SourceRemoved(source), 6)
