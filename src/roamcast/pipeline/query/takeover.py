"""Takeover: what a new pipeline continues with, so that nothing acknowledged is lost between the two."""

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
from roamcast.pipeline.state.changes import apply_records
from roamcast.pipeline.state.manifests import BEFORE_FIRST, StateFolder
from roamcast.pipeline.state.moving_regions import read_positions
from roamcast.pipeline.state.state_rows import StateRows
from roamcast.store.engine import open_sqlite
from roamcast.store.registry.port import RegistryStore
from roamcast.store.registry.schema import REGISTRY_FORMAT
from roamcast.store.registry.sql import SqlRegistry

__all__ = ["take_over_registries", "take_over_state"]


def take_over_state(folder: Path) -> Mapping[str, pa.Table] | None:
    """The rows of an earlier state by table name, for `StateFolder.create`; None if the state is incomplete.

    Letter numbers are not taken over, since they belong to the earlier pipeline. Everything that it committed is not
    done again; only the batch that it may have been in is repeated.
    """
    state = StateFolder(folder)
    try:
        manifest = state.newest()
        if manifest is None:
            return None
        rows = {table.name: state.read_table(manifest, table) for table in TABLES if table is not RECEIVERS}
        positions = state.open_regions(manifest).positions()
    except RoamcastError:
        return None
    subscriptions = rows[SUBSCRIPTIONS.name]
    rows[SUBSCRIPTIONS.name] = subscriptions.filter(pc.is_null(subscriptions["removed_in"]))
    for table in (SUBSCRIPTIONS, BINDINGS):
        rows[table.name] = _move_before_journal(rows[table.name])
    return {**rows, "positions": positions}


def _move_before_journal(rows: pa.Table) -> pa.Table:
    """Replace offsets by negative ones in the same order.

    They come before any record that is left, even if a journal has started again at 1.
    """
    offsets = pa.concat_arrays([rows[name].combine_chunks() for name in ("since", "until")])
    distinct = np.unique(offsets.drop_null().to_numpy())
    for name in ("since", "until"):
        rank = np.searchsorted(distinct, pc.fill_null(rows[name], 0).to_numpy()) - len(distinct)
        moved = pa.array(rank, pa.int64(), mask=rows[name].is_null().to_numpy(zero_copy_only=False))
        rows = rows.set_column(rows.schema.get_field_index(name), name, moved)
    return rows


def take_over_registries(data: Path) -> Mapping[str, pa.Table]:
    """The subscriptions and live bindings in the registries of the nodes of a data folder, for `StateFolder.create`.

    They apply to all records that are left. It is not known which events were processed, so everything that is still
    in the journal is matched again. Events in the time of bindings that have ended do not match these. Raises
    CorruptionError if a registry has unusable rows.
    """
    tables = [RECORD_SCHEMA.empty_table()]
    for store in sorted((data / "nodes").glob("*/store.sqlite")):
        registry = SqlRegistry(open_sqlite(store, REGISTRY_FORMAT))
        try:
            records = list(_control_records(registry))
        finally:
            registry.close()
        # Distinct offsets before all records of the node.
        tables.append(pa.Table.from_batches([to_batch(store.parent.name, -len(records), records)], RECORD_SCHEMA))
    records = pa.concat_tables(tables)
    changes = apply_records(records, BEFORE_FIRST, StateRows.empty())
    positions, bad_positions = read_positions(records)
    for dead_letter in [*changes.dead_letters, *bad_positions]:
        raise CorruptionError(
            f"the registry has an unusable row: {dead_letter.reason}",
            where=dead_letter.node,
            hint="restore the node's store from a backup",
        )
    return {SUBSCRIPTIONS.name: changes.subscriptions, BINDINGS.name: changes.bindings, "positions": positions}


def _control_records(registry: RegistryStore) -> Iterator[Record]:
    """The control records that create what is in a registry."""
    bind_texts: dict[str, tuple[str, str]] = {}
    subscribers: set[str] = set()
    for subscription in registry.subscriptions():
        if subscription.in_pipeline:
            yield Record(
                SUBSCRIPTION, subscription.subscriber, id=subscription.id, time=subscription.accepted,
                body=subscription.body,
            )  # fmt: skip
            subscribers.add(subscription.subscriber)
        elif subscription.plan == "bind":
            bind_texts[subscription.id] = subscription.text, subscription.subscriber
    for entity in registry.entities():
        if (at := entity.position) is not None and entity.id in subscribers:
            yield Record(POSITION, entity.id, time=at.time, x=at.x, y=at.y)
    for binding in registry.live_bindings():
        if binding.subscription not in bind_texts:
            continue  # created by a running node since we read the subscriptions; its record is in the journal
        text, subscriber = bind_texts[binding.subscription]
        body = BindingBody.of(_parse(text), subscriber, initial=False).to_json()
        yield Record(BINDING, binding.source, id=binding.subscription, time=binding.at, body=body)


_parse = lru_cache(maxsize=1000)(parse)  # many subscriptions have the same text
