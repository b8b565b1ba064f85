"""Compiles the kernels that a node needs for its first requests, or loads them from numba's cache."""

from __future__ import annotations

from roamcast.bind.lcesm.binder import Binder
from roamcast.bind.lcesm.messages import SourceRegistered, Subscribed, SubscriberRegistered
from roamcast.compiled import expect_compilation
from roamcast.lacl import check, parse
from roamcast.model import Position
from roamcast.space import PLANAR

__all__ = ["warm_up"]


def warm_up() -> None:
    """Register sources and a subscriber, subscribe to the nearest source, and move.

    Both spaces share compiled kernels. Kernels for removals and for `anyof()` are compiled at first use.
    """
    with expect_compilation():
        binder = Binder(PLANAR)
        sources = [f"source-{number}" for number in range(40)]
        for number, id in enumerate(sources):
            binder.handle(SourceRegistered(id, {}, Position(id, number * 1e-4, 0.0, 1)), 1)
        binder.handle(SubscriberRegistered("subscriber", {}, Position("subscriber", 0.0, 0.0, 1)), 1)
        query = check(parse("Select Where &location in nearest"))
        binder.handle(Subscribed("subscription", "subscriber", query), 2)
        for time in range(3, 6):
            x = [1e-4 * (time + number) for number in range(len(sources) + 1)]
            binder.handle_moves([*sources, "subscriber"], x, x, [time] * len(x), time)
