"""Whether everything that was published has reached the mailboxes, so that a surplus letter would be there too."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from roamcast.deliver.outbox import Outbox
from roamcast.journal.reader import FileJournalReader
from roamcast.store.office.sql import open_office


def is_drained(data: Path, *domains: str, status: str = "status.json") -> bool:
    """Whether the pipeline has read all journals, and the offices of `domains` have no letter left to post.

    Publishers must have finished: only then it stays true. `status` is the name of a status file in the outbox.
    """
    outbox, journal = Outbox(data / "outbox", status), FileJournalReader(data / "journal")
    status = outbox.read_status()
    read_offsets = {} if status is None else status.read_offsets
    if any(read_offsets.get(node, 0) < journal.last_offset(node) for node in journal.nodes()):
        return False
    return outbox.fullest()[1] == 0 and not any(_has_work(data / "nodes" / domain, domain) for domain in domains)


def _has_work(folder: Path, domain: str) -> bool:
    """Whether an office has letters to post, or a migration that is not over."""
    with closing(open_office(folder, domain)) as store, store.transaction():
        return bool(store.pending_work())
