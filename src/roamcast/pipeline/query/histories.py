"""Histories: what new subscriptions that ask for it would have received before, from the archive.

They are made in the batch of the record that asks for it, once this is archived and before it is committed, from all
records before that of the subscription: the stream makes letters of those after it. The subscription follows in the
same append of the journal, so in the same batch, or as the first of its node in the next one. Their sender is not the
pipeline but the history itself, so that a repeated batch makes the same letters with the same numbers.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from roamcast.archive.reader import Archive
from roamcast.deliver.outbox import Outbox
from roamcast.errors import ConflictError, InputError, NotFoundError, RoamcastError, StorageError
from roamcast.journal.records import SUBSCRIPTION
from roamcast.journal.tracking import HistoryBody
from roamcast.pipeline.state.control import DeadLetter, Row

__all__ = ["Evaluate", "History", "deliver_histories"]

log = logging.getLogger(__name__)


class History(NamedTuple):
    """A subscription that was accepted at a time (`accepted`), and the period before, in microseconds, of which it gets
    letters; asked for in the journal of `node` at `offset`.

    `begins` is the offset of the subscription itself; None if it comes in a later batch, or does not run yet.
    """

    node: str
    offset: int
    subscriber: str
    id: str
    accepted: int
    lacl: str
    period: int
    begins: int | None = None


Evaluate: TypeAlias = Callable[[Archive, History], pa.Table]
"""Returns the letters of a history (LETTERS_SCHEMA), always the same; none if the record repeats an earlier one."""


def deliver_histories(
    rows: pa.Table,
    control: pa.Table,
    open_archive: Callable[[], Archive] | None,
    evaluate: Evaluate | None,
    outbox: Outbox,
    pipeline: str,
    batch: int,
) -> list[DeadLetter]:
    """Write the letters of the histories of a batch, given its records, and its control records (`control`).

    Raises StorageError and ConflictError. Histories that cannot be made become dead letters, whatever the reason: the
    batch would fail again if it was repeated.
    """
    dead_letters: list[DeadLetter] = []
    for row in rows.to_pylist():
        try:
            if open_archive is None or evaluate is None:
                raise NotFoundError("there is no archive", hint="start the pipeline with --archive")
            history = _parse(row, control)
            letters = evaluate(open_archive(), history)
        except (StorageError, ConflictError):
            raise
        except Exception as error:
            unexpected = None if isinstance(error, RoamcastError) else error
            reason = f"no letters of the past: {error if unexpected is None else repr(error)}"
            log.warning("subscription %s: %s", row["id"], reason, exc_info=unexpected)
            dead_letters.append(DeadLetter(row["node"], row["offset"], reason))
            continue
        if letters.num_rows:
            sender = uuid.uuid5(uuid.UUID(pipeline), f"{history.node}/{history.id}/{history.accepted}")
            outbox.put(history.node, str(sender), max(0, batch - 1), letters)  # read before those of the stream
    return dead_letters


def _parse(row: Row, control: pa.Table) -> History:
    """Raises InputError."""
    body = HistoryBody.from_json(row["body"])
    if not row["id"] or not row["entity"] or row["seq"] is None or body.period <= 0:
        raise InputError("a history needs a subscription, a subscriber, a time and a period")
    is_it = pc.and_(pc.equal(control["kind"], SUBSCRIPTION), pc.equal(control["id"], row["id"]))
    is_it = pc.and_(is_it, pc.equal(control["node"], row["node"]))
    begins = pc.min(control["offset"].filter(pc.and_(is_it, pc.greater(control["offset"], row["offset"])))).as_py()
    return History(row["node"], row["offset"], row["entity"], row["id"], row["seq"], body.lacl, body.period, begins)
