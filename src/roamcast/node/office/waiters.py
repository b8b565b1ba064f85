"""Bells: whoever waits at a mailbox hears when there is something new."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

__all__ = ["Bells", "rung"]


class Bells:
    """Belongs to one event loop. After `stop` every bell has rung, and `stopped` says why."""

    def __init__(self) -> None:
        self._hung: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self.stopped = False

    @contextmanager
    def hung(self, receiver: str) -> Iterator[asyncio.Event]:
        """A bell that rings for every letter from now on; clear it before looking into the mailbox."""
        bell = asyncio.Event()
        if self.stopped:
            bell.set()
        self._hung[receiver].add(bell)
        try:
            yield bell
        finally:
            self._hung[receiver].discard(bell)
            if not self._hung[receiver]:
                del self._hung[receiver]

    def ring(self, receivers: Iterable[str]) -> None:
        for receiver in receivers:
            for bell in self._hung.get(receiver, ()):
                bell.set()

    def at(self, receiver: str) -> int:
        """How many bells hang for this receiver."""
        return len(self._hung.get(receiver, ()))

    def stop(self) -> None:
        self.stopped = True
        self.ring(list(self._hung))

    def __len__(self) -> int:
        """How many bells hang."""
        return sum(len(bells) for bells in self._hung.values())


async def rung(bell: asyncio.Event, seconds: float) -> bool:
    """Wait for it, at most so long; whether it rang."""
    try:
        async with asyncio.timeout(seconds):
            await bell.wait()
    except TimeoutError:
        return False
    return True
