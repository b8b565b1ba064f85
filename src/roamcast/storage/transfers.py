"""Transfers between a storage and files of this host."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

__all__ = ["transfer_all"]

_AT_ONCE: Final = 16

T = TypeVar("T")


def transfer_all(transfer: Callable[[T], object], items: Iterable[T]) -> None:
    """Call `transfer` with each item, several at once. If one fails, no more are begun; raises its error."""
    items = list(items)
    if len(items) == 1:
        transfer(items[0])
    elif items:
        with ThreadPoolExecutor(min(_AT_ONCE, len(items)), "storage") as threads:
            for _ in threads.map(transfer, items):
                pass
