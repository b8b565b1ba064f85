"""What a new pipeline takes over from the one before, so that nothing acknowledged is lost between the two."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from roamcast.errors import RoamcastError
from roamcast.pipeline.schemas import SOURCES, SUBSCRIPTIONS
from roamcast.pipeline.state import StateFolder
from roamcast.store.sql import SqlRegistry, open_sqlite

__all__ = ["from_registries", "from_state"]


def from_state(folder: Path) -> Mapping[str, pa.Table] | None:
    """The live subscriptions and the numbers seen, out of an earlier state; None if it is not all there.

    With them, what the earlier pipeline has done is not done again: only the batch it may have been in comes twice.
    """
    state = StateFolder(folder)
    try:
        manifest = state.newest() if folder.is_dir() else None
        if manifest is None:
            return None
        rows = {t.name: state.parts.read_all(t, manifest.parts(t.name)) for t in (SUBSCRIPTIONS, SOURCES)}
    except RoamcastError:
        return None
    subscriptions = rows[SUBSCRIPTIONS.name]
    return {**rows, SUBSCRIPTIONS.name: subscriptions.filter(pc.is_null(subscriptions["removed_in"]))}


def from_registries(data: Path) -> Mapping[str, pa.Table]:
    """The subscriptions that the nodes of a data folder know, in force from the first record that is left.

    What was seen is not known any more: whatever is still in the journal is matched again.
    """
    rows: list[dict[str, object]] = []
    for store in sorted((data / "nodes").glob("*/store.sqlite")):
        registry = SqlRegistry(open_sqlite(store))
        for subscription in registry.subscriptions():
            box = subscription.box or (-math.inf, -math.inf, math.inf, math.inf)
            rows.append(
                {
                    "node": store.parent.name,
                    "since": -1 - len(rows),  # before any record, and a key of its own
                    "id": subscription.id,
                    "subscriber": subscription.subscriber,
                    **dict(zip(("min_x", "min_y", "max_x", "max_y"), box, strict=True)),
                    "terms": sorted(set(subscription.terms)),
                }
            )
        registry.close()
    return {SUBSCRIPTIONS.name: pa.Table.from_pylist(rows, SUBSCRIPTIONS.schema)}
