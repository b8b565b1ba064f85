"""What a new pipeline takes over from the one before, so that nothing acknowledged is lost between the two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.errors import CorruptionError, RoamcastError
from roamcast.journal.bodies import BindingBody
from roamcast.journal.records import BINDING, POSITION, RECORD_SCHEMA, SUBSCRIPTION, Record, to_batch
from roamcast.lacl import parse
from roamcast.pipeline.schemas import BINDINGS, RECEIVERS, SUBSCRIPTIONS, TABLES
from roamcast.pipeline.state.control import Nothing, changes_of
from roamcast.pipeline.state.manifests import BEFORE_FIRST, StateFolder
from roamcast.pipeline.state.moving_regions import positions_of
from roamcast.store.engine import open_sqlite
from roamcast.store.registry.port import RegistryStore
from roamcast.store.registry.schema import REGISTRY_FORMAT
from roamcast.store.registry.sql import SqlRegistry

__all__ = ["from_registries", "from_state"]


def from_state(folder: Path) -> Mapping[str, pa.Table] | None:
    """All that an earlier state holds but the numbers of letters, which were its own; None if it is not all there.

    With it, what the earlier pipeline has done is not done again: only the batch it may have been in comes twice.
    """
    state = StateFolder(folder)
    try:
        manifest = state.newest() if folder.is_dir() else None
        if manifest is None:
            return None
        kept = [table for table in TABLES if table is not RECEIVERS]
        rows = {table.name: state.parts.read_all(table, manifest.parts(table.name)) for table in kept}
        positions = state.regions(manifest).positions()
    except RoamcastError:
        return None
    subscriptions = rows[SUBSCRIPTIONS.name]
    rows[SUBSCRIPTIONS.name] = subscriptions.filter(pc.is_null(subscriptions["removed_in"]))
    moved = {table.name: _before_all(rows[table.name]) for table in (SUBSCRIPTIONS, BINDINGS)}
    return {**rows, **moved, "positions": positions}


def _before_all(rows: pa.Table) -> pa.Table:
    """At places before any record that is left, even where a journal has begun anew; in the order they had."""
    places = pa.concat_arrays([rows[name].combine_chunks() for name in ("since", "until")])
    distinct = np.unique(places.drop_null().to_numpy())
    for name in ("since", "until"):
        at = np.searchsorted(distinct, pc.fill_null(rows[name], 0).to_numpy()) - len(distinct)
        moved = pa.array(at, pa.int64(), mask=rows[name].is_null().to_numpy(zero_copy_only=False))
        rows = rows.set_column(rows.schema.get_field_index(name), name, moved)
    return rows


def from_registries(data: Path) -> Mapping[str, pa.Table]:
    """The subscriptions and bindings that the nodes of a data folder know, in force from the first record that is left.

    What was seen is not known any more: whatever is still in the journal is matched again. Nor are bindings that have
    ended: events of their time that are still in the journal do not meet them.
    """
    tables = [RECORD_SCHEMA.empty_table()]
    for store in sorted((data / "nodes").glob("*/store.sqlite")):
        registry = SqlRegistry(open_sqlite(store, REGISTRY_FORMAT))
        try:
            records = list(_in_force(registry))
        finally:
            registry.close()
        # At places before any record of the node, each of its own.
        tables.append(pa.Table.from_batches([to_batch(store.parent.name, -len(records), records)], RECORD_SCHEMA))
    records = pa.concat_tables(tables)
    changes, (positions, broken) = changes_of(records, BEFORE_FIRST, Nothing()), positions_of(records)
    for item in [*changes.set_aside, *broken]:
        hint = "restore the node's store from a copy"
        raise CorruptionError(f"the registry has what cannot be used: {item.reason}", where=item.node, hint=hint)
    return {SUBSCRIPTIONS.name: changes.subscriptions, BINDINGS.name: changes.bindings, "positions": positions}


def _in_force(registry: RegistryStore) -> Iterator[Record]:
    """The control records that would make what is in force."""
    texts: dict[str, tuple[str, str]] = {}
    subscribers: dict[str, None] = {}
    for subscription in registry.subscriptions():
        if subscription.in_pipeline:
            yield Record(
                SUBSCRIPTION, subscription.subscriber, id=subscription.id, time=subscription.accepted,
                body=subscription.body,
            )  # fmt: skip
            subscribers[subscription.subscriber] = None
        elif subscription.body is None:
            texts[subscription.id] = subscription.text, subscription.subscriber
    for entity in registry.entities():
        if (at := entity.position) is not None and entity.id in subscribers:
            yield Record(POSITION, entity.id, time=at.time, x=at.x, y=at.y)
    for bound in registry.live_bindings():
        if bound.subscription not in texts:
            continue  # made since by a node that runs; its record is in the journal
        text, subscriber = texts[bound.subscription]
        body = BindingBody.of(_query(text), subscriber, initial=False).to_json()
        yield Record(BINDING, bound.source, id=bound.subscription, time=bound.at, body=body)


_query = lru_cache(maxsize=1000)(parse)  # many ask for the same
