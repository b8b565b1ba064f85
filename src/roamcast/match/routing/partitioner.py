"""The port of partitioners: which worker holds which subscriptions, and which workers an event must go to."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import IndexRows
from roamcast.match.index.segments import Arrays
from roamcast.match.port import Events, Matches

__all__ = ["MAX_WORKERS", "NOWHERE", "Moves", "Partitioner", "Routed", "moves_between"]

Integers = npt.NDArray[np.int64]
Masks = npt.NDArray[np.uint64]

NOWHERE: Final = -1
MAX_WORKERS: Final = 64


class Routed(NamedTuple):
    """Messages: each pair of an event and a worker it goes to, once, ordered by event, then worker."""

    event: Integers
    worker: Integers


class Moves(NamedTuple):
    """A subscription comes to the worker `target` from `source`; NOWHERE where it was not or will not be."""

    handle: Integers
    source: Integers
    target: Integers

    @classmethod
    def joined(cls, some: list[Moves]) -> Moves:
        return cls(*(np.concatenate([np.empty(0, np.int64), *column]) for column in zip(*some, _NOTHING, strict=True)))


_NOTHING: Final[tuple[Any, ...]] = tuple(np.empty(0, np.int64) for _ in range(3))


class Partitioner(Protocol):
    """Exact: whoever follows all moves, each in its turn, and sends events as routed, finds every match at some worker.

    Each match is found at one worker only. Handles are new with `add`, and ascend. Nothing depends on time or chance.
    """

    workers: int

    def add(self, rows: IndexRows) -> Moves:
        """Subscriptions come; others may move because of it."""

    def remove(self, handles: Integers) -> Moves:
        """Subscriptions go; those that are not here are passed over."""

    def route(self, events: Events) -> Routed:
        """The workers that may hold a match."""

    def observe(self, events: Events, matches: Matches) -> None:
        """What came of some events, or of a sample: the matches name subscriptions by their handles."""

    def balance(self) -> Moves:
        """Move what makes the load even, by what was observed since the last call."""

    def arrays(self) -> Arrays:
        """All there is to it, for a file."""


def moves_between(handle: Integers, before: Masks, after: Masks) -> Moves:
    """What takes subscriptions from the workers in one mask to those in another."""
    found: list[Moves] = []
    concerned = int(np.bitwise_or.reduce(before | after, initial=np.uint64(0)))
    for worker in range(concerned.bit_length()):
        bit = np.uint64(1 << worker)
        for rows, goes in (
            (np.flatnonzero(after & ~before & bit), False),
            (np.flatnonzero(before & ~after & bit), True),
        ):
            here, nowhere = np.full(len(rows), worker), np.full(len(rows), NOWHERE)
            found.append(Moves(handle[rows], *((here, nowhere) if goes else (nowhere, here))))
    return _paired(Moves.joined(found))


def _paired(moves: Moves) -> Moves:
    """A subscription that comes to one worker and goes from another is one move."""
    order = np.lexsort((moves.target, moves.handle))
    moves = Moves(*(column[order] for column in moves))
    coming, going = moves.source == NOWHERE, moves.target == NOWHERE
    arrived, left = (Moves(*(column[some] for column in moves)) for some in (coming, going))
    number_in, number_out = _turns(arrived.handle), _turns(left.handle)
    key_in, key_out = arrived.handle * MAX_WORKERS + number_in, left.handle * MAX_WORKERS + number_out
    _, at_in, at_out = np.intersect1d(key_in, key_out, assume_unique=True, return_indices=True)
    arrived.source[at_in] = left.source[at_out]
    rest = np.delete(np.arange(len(left.handle)), at_out)
    return Moves.joined([arrived, Moves(*(column[rest] for column in left))])


def _turns(handle: Integers) -> Integers:
    """Of equal handles, which lie side by side: 0, 1, …"""
    first = np.flatnonzero(np.diff(handle, prepend=-1))
    return np.arange(len(handle)) - np.repeat(first, np.diff(np.append(first, len(handle))))
