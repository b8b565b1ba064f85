"""Cost of a letter after very many others: an office with its store on disk, without HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from roamcast.deliver.office import Office
from roamcast.deliver.requests import Acknowledge, Deposit, Pull, Pulled, Register
from roamcast.model import Letter
from roamcast.store.office.sql import open_office

__all__ = ["bench_long_term"]

_BODY = '{"message":"' + "x" * 186 + '"}'
_BATCH = 5_000
_ROUND = 100_000  # letters in the mailboxes before they are read
_GROUP = 64  # mailboxes read in one transaction
_REPORT_EVERY = 1_000_000


def bench_long_term(
    folder: Path, receivers: int, counts: Sequence[int], say: Callable[[str], None]
) -> dict[int, float]:
    """Microseconds of processor time per letter, in and out, in the round that ends at each count."""
    names = [f"north.bench.r{number}" for number in range(receivers)]
    store = open_office(folder, "north")
    office = Office("north", store)
    for first in range(0, receivers, 1_000):
        office.handle_all([Register(name) for name in names[first : first + 1_000]], 0)
    costs: dict[int, float] = {}
    for sent in range(_ROUND, max(counts) + 1, _ROUND):
        began = time.process_time()
        _deposit(office, names, sent - _ROUND)
        _read(office, names)
        if sent in counts:
            costs[sent] = round((time.process_time() - began) / _ROUND * 1e6, 2)
        if sent % _REPORT_EVERY == 0:
            say(f"{sent} letters sent, read and acknowledged")
    store.close()
    return costs


def _deposit(office: Office, names: Sequence[str], start: int) -> None:
    for first in range(start, start + _ROUND, _BATCH):
        letters = [
            Letter(names[i % len(names)], "bench", i // len(names) + 1, _BODY) for i in range(first, first + _BATCH)
        ]
        office.handle(Deposit(tuple(letters)), 0)


def _read(office: Office, names: Sequence[str]) -> None:
    for first in range(0, len(names), _GROUP):
        group = names[first : first + _GROUP]
        acknowledgements = []
        for outcome in office.handle_all([Pull(name, 1_000) for name in group], 0):
            (pulled,) = outcome if isinstance(outcome, list) else []
            if isinstance(pulled, Pulled) and pulled.letters:
                acknowledgements.append(Acknowledge(pulled.name, pulled.letters[-1].offset or 0))
        office.handle_all(acknowledgements, 0)
