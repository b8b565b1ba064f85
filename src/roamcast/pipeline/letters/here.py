"""Making the letters of a small batch in the driver, without Spark. `job` does the same in tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from roamcast.deliver.batch_records import LetterFile
from roamcast.pipeline.letters.by_receiver import LetterSink, make_letters
from roamcast.pipeline.letters.by_source import address_events
from roamcast.pipeline.letters.context import LetterContext, LetterReport

__all__ = ["make_letters_here"]


def make_letters_here(
    matched: pa.Table, context: LetterContext, sink: LetterSink, files: Callable[[], Sequence[LetterFile]] = tuple
) -> list[LetterReport]:
    """Make the letters of these matched events (MATCHED_SCHEMA) in this process, and pass them to `sink`.

    Once all are there, `files` closes the files in which it wrote them.
    """
    addressed, by_source = address_events(matched, context, context.open(), context.initial)
    by_receiver = make_letters(addressed, context, context.open(), sink)
    return [by_source, by_receiver._replace(files=files())]
