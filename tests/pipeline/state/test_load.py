"""The load that tasks report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from batches import PureStream, control, match_rows, placed
from worlds import event, subscription

from roamcast.match.partitioners.categories import CategoryParameters
from roamcast.match.partitioners.kdtree import cell_centres, point_cells
from roamcast.pipeline.query.batch_state import BatchSettings
from roamcast.pipeline.schemas import MATCHED_SCHEMA
from roamcast.pipeline.state.load import LoadRows
from roamcast.pipeline.state.partitioning import PartitionerName, PartitioningSettings

HERE = (0, 0, 4, 4)


def stream(folder: Path, partitioner: PartitionerName) -> PureStream:
    """Two shards. Two subscriptions to fire, in one category, and one to ice, in another."""
    partitioning = PartitioningSettings(partitioner, categories=CategoryParameters(5))
    shared = PureStream(folder, BatchSettings(workers=2, partitioning=partitioning))
    wanted = [("s1", ("fire",)), ("s2", ("fire",)), ("s3", ("ice",))]
    shared.run(placed([subscription(id, "ann", HERE, terms) for id, terms in wanted]))
    return shared


def load_of(shared: PureStream, points: list[tuple[float, str]]) -> LoadRows:
    """The load of a batch of events at the offsets 8, 16, 24, …, which are all sampled."""
    rows = [row for n, (x, term) in enumerate(points, 1) for row in placed([event("c", n, x, 1, [term])], first=8 * n)]
    context = shared.state.prepare(control(rows), shared.state.manifest.batch + 1).context
    return LoadRows.of_matched(match_rows(context, rows))


def totals(load: LoadRows) -> list[list[int]]:
    return [column.tolist() for column in load]


@pytest.mark.parametrize("partitioner", ["curve", "hashing", "kdtree", "drtcluster"])
def test_shards_count_messages_checks_and_matches(tmp_path: Path, partitioner: PartitionerName) -> None:
    """Those of an event just outside of a box too, though it matches nothing."""
    load = load_of(
        stream(tmp_path, partitioner), [(1, "fire"), (1, "ice"), (3.9, "fire"), (4.01, "fire"), (90, "fire")]
    )
    shards = load.of_shards
    assert shards.matches.sum() == 5
    assert shards.messages.sum() >= 4
    assert shards.checks.sum() >= 6
    assert (len(load.of_units.unit) > 0) == (partitioner in ("kdtree", "drtcluster"))


def test_categories_receive_events_of_which_a_posting_is_compared(tmp_path: Path) -> None:
    """Whether it matches or not. The category of fire has two members, so an event means two checks."""
    shared = stream(tmp_path, "drtcluster")
    units = load_of(shared, [(1, "fire"), (1, "ice"), (3.9, "fire"), (4.01, "fire")]).of_units
    fire, ice = 0, 1
    assert units.unit.tolist() == [fire, ice]
    assert units.messages.tolist() == [3, 1]
    assert units.checks.tolist() == [2 * units.messages[fire], 1]
    assert units.matches.tolist() == [4, 1]


def test_events_at_other_offsets_are_not_sampled(tmp_path: Path) -> None:
    """They count for the shard only."""
    shared = stream(tmp_path, "drtcluster")
    rows = placed([event("c", n, 1, 1, ["fire"]) for n in range(1, 17)], first=9)
    context = shared.state.prepare(control(rows), shared.state.manifest.batch + 1).context
    load = LoadRows.of_matched(match_rows(context, rows))
    assert load.of_shards.messages.tolist() == [16]
    assert load.of_units.messages.tolist() == [2]


def test_load_is_summed_in_a_fixed_order() -> None:
    """Whatever the order in which tasks end."""
    parts = [LoadRows.of(1, np.array([4, -1, 4]), 1, 2, 3), LoadRows.of(0, np.array([7]), 1)]
    expected = [[0, 1, 1], [7, -1, 4], [1, 1, 2], [0, 2, 4], [0, 3, 6]]
    for order in (parts, parts[::-1]):
        assert totals(LoadRows.concatenate(order)) == expected


def test_load_without_rows() -> None:
    assert totals(LoadRows.of_matched(MATCHED_SCHEMA.empty_table())) == [[], [], [], [], []]
    lists = LoadRows.of(0, np.array([3]), 1).to_lists(2)
    assert [len(row) for row in lists.to_pylist()] == [1, 0]
    assert pa.types.is_list(lists.type)


def test_cells_are_found_again_by_their_centres() -> None:
    """Fine near 0, coarse far away."""
    points = np.array([0.01, -0.01, 8.6821, -53.1, 179.99, 1e7, -1e9])
    cells = point_cells(points, points[::-1])
    centres = cell_centres(cells)
    assert (point_cells(centres[:, 0], centres[:, 1]) == cells).all()
    assert (np.abs(centres[:, 0] - points) < 0.002 * (1 + np.abs(points))).all()
