"""A small world that uses every kernel once, so that all are compiled, or taken from numba's cache."""

from __future__ import annotations

from roamcast.bind.lcesm.binder import Binder
from roamcast.bind.lcesm.messages import SourceRegistered, SourceRemoved, Subscribed, SubscriberRegistered, Unsubscribed
from roamcast.lacl import parse
from roamcast.model import Position
from roamcast.space import SPACES

__all__ = ["rehearse"]

_WISHES = (
    "Select Where &location in nearest",
    "Select Where &location in nearest(2)",
    "Select nearof() Where &location in rang:loc(30)",
    "Select remoteof() Where &location in rang:loc(30)",
    "Select anyof() Where &location in rang:loc(30)",
    "Select nearof() Where &location in rang:loc(30) Life-control #location in circle(0, 0, 20)",
)


def rehearse() -> None:
    """Register, subscribe, move, unsubscribe and remove, in both spaces."""
    for space in SPACES.values():
        binder = Binder(space)
        names = [f"source-{number}" for number in range(40)]
        for number, name in enumerate(names):
            binder.handle(SourceRegistered(name, {}, Position(name, number * 1e-4, 0.0, 1)), 1)
        binder.handle(SubscriberRegistered("subscriber", {}, Position("subscriber", 0.0, 0.0, 1)), 1)
        for number, text in enumerate(_WISHES):
            binder.handle(Subscribed(str(number), "subscriber", parse(text)), 2)
        for time in range(3, 6):
            x = [1e-4 * (time + number) for number in range(len(names) + 1)]
            binder.handle_moves([*names, "subscriber"], x, x, [time] * len(x), time)
        for number in range(len(_WISHES)):
            binder.handle(Unsubscribed(str(number)), 6)
        for name in names:
            binder.handle(SourceRemoved(name), 7)
