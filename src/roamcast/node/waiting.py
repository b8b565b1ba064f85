"""Waiting without polling: events for those who wait for something new, and awaiting work of other threads."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["Waiters", "await_to_the_end", "wait_for"]

T = TypeVar("T")


class Waiters:
    """Those who wait for something new, by the name of what they wait for. Belongs to one event loop.

    `stop` sets `stopped` and notifies every waiter, also those that begin to wait later.
    """

    def __init__(self) -> None:
        self._events: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self.stopped = False

    @contextmanager
    def waiting(self, *names: str) -> Iterator[asyncio.Event]:
        """An event that is set by every `notify` of one of these names. Clear it before looking for what is new."""
        event = asyncio.Event()
        if self.stopped:
            event.set()
        for name in names:
            self._events[name].add(event)
        try:
            yield event
        finally:
            for name in names:
                self._events[name].discard(event)
                if not self._events[name]:
                    del self._events[name]

    def notify(self, names: Iterable[str]) -> None:
        for name in names:
            for event in self._events.get(name, ()):
                event.set()

    def count(self, name: str) -> int:
        """How many wait for this name."""
        return len(self._events.get(name, ()))

    def stop(self) -> None:
        self.stopped = True
        self.notify(list(self._events))

    def __len__(self) -> int:
        """How many wait in all. Who waits for several names counts once."""
        return len(set().union(*self._events.values()))


async def wait_for(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event at most `seconds`; whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def await_to_the_end(future: Future[T]) -> T:
    """Await without cancelling the work when the client disconnects."""
    return await asyncio.shield(asyncio.wrap_future(future))
