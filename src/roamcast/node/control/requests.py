"""What is asked of the bindery, and how who asked hears of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from copy import copy
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from roamcast.errors import RoamcastError
from roamcast.node.control.request_group import Work

__all__ = ["Done", "Mailboxes", "Request", "refuse"]

T = TypeVar("T")


class Mailboxes(Protocol):
    """What the bindery must know of the post office."""

    def erase(self, receivers: Iterable[str]) -> None:
        """Of subscribers who have left: for good, so that letters that come later are dropped. Idempotent."""


class Request(NamedTuple, Generic[T]):
    """`registers`: it is acknowledged once it is stored, as a token is told only once. `alone`: it is its own group.

    `asks`: it changes nothing, and needs no disk.
    """

    act: Callable[[Work], T]
    done: Future[T]
    registers: bool = False
    alone: bool = False
    asks: bool = False


class Done(NamedTuple):
    """A request that was worked on; it is told of it when all is stored."""

    request: Request[Any]
    result: object
    error: RoamcastError | None

    @classmethod
    def of(cls, request: Request[Any], work: Work) -> Done:
        try:
            return cls(request, request.act(work), None)
        except RoamcastError as error:
            return cls(request, None, error)

    def tell(self) -> None:
        if self.error is None:
            self.request.done.set_result(self.result)
        else:
            self.request.done.set_exception(self.error)


def refuse(requests: Iterable[Request[Any]], error: Exception) -> None:
    for request in requests:
        # Each gets its own: an error grows a traceback every time it is raised.
        request.done.set_exception(copy(error) if isinstance(error, RoamcastError) else error)
