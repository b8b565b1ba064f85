"""Erasing: what rows of the archive nobody may read any more because an entity has left or had its position erased."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.archive.versions import Erasure
from roamcast.journal.records import FORGOTTEN, LEFT, REGISTERED, STATE, TRACK, are_events
from roamcast.model import global_name

__all__ = ["erase", "erasures_of", "has_erased"]

_POINT = ("time", "x", "y")


def erasures_of(rows: pa.Table) -> list[Erasure]:
    """The erasures that records of a batch ask for, by node and offset. Sources of other nodes are theirs to erase."""
    wanted = pc.is_in(rows["kind"], pa.array([LEFT, FORGOTTEN]))
    wanted = pc.and_(wanted, pc.invert(pc.match_substring(pc.fill_null(rows["entity"], "@"), "@")))
    chosen = rows.filter(wanted).select(["kind", "node", "entity", "offset", "batch", "written"])
    chosen = chosen.set_column(5, "written", chosen["written"].cast(pa.int64()))
    return [Erasure(0, *values) for values in zip(*(column.to_pylist() for column in chosen.columns), strict=True)]


def has_erased(rows: pa.Table, erasures: Sequence[Erasure]) -> bool:
    """Whether `rows`, of which only `node`, `entity`, `offset` and `batch` are needed, may have any erased records."""
    return bool(np.any(_candidates(rows, erasures)))


def erase(rows: pa.Table, erasures: Sequence[Erasure]) -> pa.Table:
    """The rows without those that are erased, and with no position in the registrations of forgotten ones."""
    candidates = np.flatnonzero(_candidates(rows, erasures))
    if not len(candidates):
        return rows
    few = rows.select(["node", "entity", "offset", "batch"]).take(pa.array(candidates))
    by_entity: dict[str, list[Erasure]] = {}
    for erasure in erasures:
        by_entity.setdefault(global_name(erasure.entity, erasure.node), []).append(erasure)
    is_left, is_forgotten = np.zeros((2, rows.num_rows), np.bool_)
    for at, node, entity, offset, batch in zip(
        candidates, *(few[n].to_pylist() for n in few.column_names), strict=True
    ):
        name = entity if "@" in entity else global_name(entity, node)
        for erasure in by_entity.get(name, ()):
            if offset <= erasure.offset if node == erasure.node else batch <= erasure.batch:
                (is_left if erasure.kind == LEFT else is_forgotten)[at] = True
    kinds = rows["kind"]
    tells_where = pc.or_(are_events(kinds), pc.is_in(kinds, pa.array([TRACK, STATE, FORGOTTEN])))
    gone = pc.or_(pa.array(is_left), pc.and_(pa.array(is_forgotten), tells_where.combine_chunks()))
    has_point = pc.and_(pa.array(is_forgotten), pc.equal(kinds, REGISTERED).combine_chunks())
    for name in _POINT:
        column = rows.schema.get_field_index(name)
        cleared = pc.if_else(has_point, pa.scalar(None, rows.schema.field(name).type), rows[name].combine_chunks())
        rows = rows.set_column(column, rows.schema.field(name), cleared)
    return rows.filter(pc.invert(gone))


def _candidates(rows: pa.Table, erasures: Iterable[Erasure]) -> npt.NDArray[np.bool_]:
    """Which rows are about an entity with such a name."""
    names = {name for each in erasures for name in (each.entity, global_name(each.entity, each.node))}
    if not names:
        return np.zeros(rows.num_rows, np.bool_)
    found: npt.NDArray[np.bool_] = pc.is_in(rows["entity"], pa.array(sorted(names))).to_numpy()
    return found
