"""Histories: what new subscriptions that ask for it would have received before, from the archive.

They are made in the batch of the subscription, once this is archived and before it is committed, from all records
before that of the subscription: the stream makes letters of those after it. Their sender is not the pipeline but the
history itself, so that a repeated batch makes the same letters with the same numbers.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from roamcast.archive.reader import Archive
from roamcast.deliver.outbox import Outbox
from roamcast.errors import InputError, NotFoundError, RoamcastError, StorageError
from roamcast.journal.tracking import HistoryBody
from roamcast.pipeline.state.control import DeadLetter, Row

__all__ = ["Evaluate", "History", "deliver_histories"]

log = logging.getLogger(__name__)


class History(NamedTuple):
    """A subscription that was accepted at a time (`accepted`) and is in the journal of `node` at `offset`; and the
    period before, in microseconds, of which it gets letters.
    """

    node: str
    offset: int
    subscriber: str
    id: str
    accepted: int
    lacl: str
    period: int


Evaluate: TypeAlias = Callable[[Archive, History], pa.Table]
"""Returns the letters of a history (LETTERS_SCHEMA), always the same; none if the record repeats an earlier one."""


def deliver_histories(
    rows: pa.Table,
    open_archive: Callable[[], Archive] | None,
    evaluate: Evaluate | None,
    outbox: Outbox,
    pipeline: str,
    batch: int,
) -> list[DeadLetter]:
    """Write the letters of the histories of a batch, given its records. Raises StorageError.

    Histories that cannot be made become dead letters.
    """
    dead_letters: list[DeadLetter] = []
    for row in rows.to_pylist():
        try:
            if open_archive is None or evaluate is None:
                raise NotFoundError("there is no archive", hint="start the pipeline with --archive")
            history = _parse(row)
            letters = evaluate(open_archive(), history)
        except StorageError:
            raise
        except RoamcastError as error:
            log.warning("no letters of the past for subscription %s: %s", row["id"], error)
            dead_letters.append(DeadLetter(row["node"], row["offset"], f"no letters of the past: {error}"))
            continue
        if letters.num_rows:
            sender = uuid.uuid5(uuid.UUID(pipeline), f"{history.node}/{history.id}/{history.accepted}")
            outbox.put(history.node, str(sender), max(0, batch - 1), letters)  # read before those of the stream
    return dead_letters


def _parse(row: Row) -> History:
    """Raises InputError."""
    body = HistoryBody.from_json(row["body"])
    if not row["id"] or not row["entity"] or row["seq"] is None or body.period <= 0:
        raise InputError("a history needs a subscription, a subscriber, a time and a period")
    return History(row["node"], row["offset"], row["entity"], row["id"], row["seq"], body.lacl, body.period)
