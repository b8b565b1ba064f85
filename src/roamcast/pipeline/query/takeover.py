"""Takeover: what a new pipeline continues with, so that nothing acknowledged is lost between the two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.durable import storage_errors
from roamcast.errors import CorruptionError, MissingExtraError, RoamcastError
from roamcast.journal.bodies import BindingBody
from roamcast.journal.reader import is_link_name, is_node_name, open_journal
from roamcast.journal.records import BINDING, POSITION, RECORD_SCHEMA, SUBSCRIPTION, Record, to_batch
from roamcast.journal.wants import begin_want
from roamcast.lacl import parse
from roamcast.pipeline.schemas import BINDINGS, RECEIVERS, SUBSCRIPTIONS, TABLES
from roamcast.pipeline.state.changes import apply_records
from roamcast.pipeline.state.index_state import assign_handles
from roamcast.pipeline.state.manifests import BEFORE_FIRST, StateFolder
from roamcast.pipeline.state.moving_regions import MovingRegionState, read_positions
from roamcast.pipeline.state.state_rows import StateRows
from roamcast.store.location import read_location
from roamcast.store.registry.port import RegistryStore

__all__ = ["Inherited", "take_over_registries", "take_over_state"]


class Inherited(NamedTuple):
    """What `StateFolder.create` takes: rows by table name, and the moving regions among the subscriptions."""

    rows: Mapping[str, pa.Table]
    regions: MovingRegionState


def take_over_state(folder: Path) -> Inherited | None:
    """What an earlier state has; None if it is incomplete.

    Letter numbers are not taken over, since they belong to the earlier pipeline. Everything that it committed is not
    done again; only the batch that it may have been in is repeated.
    """
    state = StateFolder(folder)
    try:
        manifest = state.newest()
        if manifest is None:
            return None
        rows = {table.name: state.read_table(manifest, table) for table in TABLES if table is not RECEIVERS}
        subscriptions = rows[SUBSCRIPTIONS.name].filter(pc.is_null(rows[SUBSCRIPTIONS.name]["drained_in"]))
        moved = _move_before_journal(_removed_before_all(subscriptions))
        # A later record says up to which offset removals are drained.
        moved = moved.set_column(moved.schema.get_field_index("until"), "until", subscriptions["until"])
        moving = moved.filter(pc.is_valid(moved["moving_radius"]))
        regions = MovingRegionState.open(state.segments, manifest.moving_regions, moving)
    except RoamcastError:
        return None
    rows |= {SUBSCRIPTIONS.name: moved, BINDINGS.name: _move_before_journal(rows[BINDINGS.name])}
    return Inherited(rows, regions)


def _removed_before_all(rows: pa.Table) -> pa.Table:
    """Batches are counted from 0 again: what was removed was removed before."""
    removed_in = pc.if_else(pc.is_null(rows["removed_in"]), None, pa.scalar(-1, pa.int64()))
    return rows.set_column(rows.schema.get_field_index("removed_in"), "removed_in", removed_in)


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


def take_over_registries(data: Path) -> Inherited:
    """The subscriptions and live bindings in the registries of the nodes of a data folder.

    They apply to all records that are left. It is not known which events were processed, so everything that is still
    in the journal is matched again. Events in the time of bindings that have ended do not match these. Raises
    CorruptionError if a registry is missing or has unusable rows, StorageError if one cannot be read.
    """
    tables = [RECORD_SCHEMA.empty_table()]
    for node in _nodes(data):
        records = _read_registry(node, data / "nodes" / node)
        # Distinct offsets before all records of the node.
        tables.append(pa.Table.from_batches([to_batch(node, -len(records), records)], RECORD_SCHEMA))
    records = pa.concat_tables(tables)
    changes = apply_records(records, BEFORE_FIRST, StateRows.empty())
    positions, bad_positions = read_positions(records)
    for dead_letter in [*changes.dead_letters, *bad_positions]:
        raise CorruptionError(
            f"the registry has an unusable row: {dead_letter.reason}",
            where=dead_letter.node,
            hint="restore the node's store from a backup",
        )
    subscriptions = assign_handles(changes.subscriptions, 0)
    regions = MovingRegionState.empty().update(subscriptions, positions, {}).regions
    return Inherited({SUBSCRIPTIONS.name: subscriptions, BINDINGS.name: changes.bindings}, regions)


def _nodes(data: Path) -> list[str]:
    """The nodes that have a folder or a record in the journal, ordered by name."""
    folder, journal = data / "nodes", open_journal(data)
    with storage_errors(folder):
        nodes = {path.name for path in folder.iterdir() if path.is_dir()} if folder.exists() else set()
    journals = (node for node in journal.nodes() if not is_link_name(node) and journal.last_offset(node))
    return sorted({*filter(is_node_name, nodes), *journals})


def _read_registry(node: str, folder: Path) -> list[Record]:
    """The control records of a node, from wherever its registry is."""
    try:
        registry = _open_registry(node, folder)
        try:
            return list(_control_records(registry))
        finally:
            registry.close()
    except RoamcastError as error:
        message = f"cannot take over the subscriptions of node {node}: {error.message}"
        raise type(error)(message, where=error.where, hint=error.hint) from error


def _open_registry(node: str, folder: Path) -> RegistryStore:
    where = read_location(folder)
    try:
        # Imported here because a takeover is rare, and importing SQLAlchemy takes half a second.
        from roamcast.store.registry.sql import open_registry

        return open_registry(where, node, create=False)
    except ImportError as error:
        hint = "pip install 'roamcast[node]'"
        raise MissingExtraError("reading a registry needs packages that are not installed", hint=hint) from error


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
    for link, want in sorted({(want.link, want.want) for want in registry.wants()}):
        yield begin_want(link, want, registry.latest())


_parse = lru_cache(maxsize=1000)(parse)  # many subscriptions have the same text
