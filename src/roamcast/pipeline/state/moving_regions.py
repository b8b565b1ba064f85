"""Moving regions as part of the state: whose they are, where they are, and where they were within a batch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.journal.records import POSITION
from roamcast.match.index.moving import CircleTest, MovingRegions, RegionBoxes
from roamcast.match.index.segments import Arrays, SegmentFolder
from roamcast.model import BEFORE_ALL, EARLIEST, LATEST, NO_END
from roamcast.pipeline.schemas import POSITIONS, SUBSCRIPTIONS
from roamcast.pipeline.state.control import DeadLetter
from roamcast.pipeline.state.lookups import Integers, RowLookup, running_max
from roamcast.space import SPACES, Floats

__all__ = ["MovingRegionFiles", "MovingRegionState", "MovingRegionsUpdate", "read_positions"]

_COLUMNS: Final = ("node", "subscriber", "handle", "space", "moving_radius", "since", "until", "drained_in")
_NO_ROWS: Final = pa.schema([SUBSCRIPTIONS.schema.field(name) for name in _COLUMNS]).empty_table()
_NO_BOXES: Final = RegionBoxes(np.empty(0, np.int64), np.empty((0, 4)))


class MovingRegionFiles(NamedTuple):
    """The files of the moving regions of one space that the tasks of a batch open. See `match.index.moving`."""

    space: str
    version: str
    trail: str | None

    def open(self, folder: Path) -> CircleTest:
        return CircleTest(SPACES[self.space], folder, self.version, self.trail)


class MovingRegionsUpdate(NamedTuple):
    """What a batch changes.

    `trails` has, by space, where the regions that moved were within the batch. `boxes` are those that the index needs:
    of new regions, and of regions that have left their box.
    """

    regions: MovingRegionState
    boxes: RegionBoxes
    trails: Mapping[str, Arrays]
    dead_letters: list[DeadLetter]

    def save(self, folder: Path) -> tuple[MovingRegionFiles, ...]:
        """Write the files durably."""
        files = SegmentFolder(folder)
        trails = {space: files.write(trail) for space, trail in self.trails.items()}
        return tuple(
            MovingRegionFiles(space, version, trails.get(space)) for space, version in self.regions.save(folder).items()
        )


class MovingRegionState:
    """All moving regions of a state. Immutable: `update` returns another.

    A position applies to the regions of its subscriber that exist at its offset in the journal. One that is older than
    the known position is ignored: a node that crashed may journal its last positions again.
    """

    def __init__(self, owners: RowLookup, spaces: Mapping[str, MovingRegions], versions: dict[str, str] | None) -> None:
        self._owners = owners
        self._spaces = spaces
        self._versions = versions

    @classmethod
    def empty(cls) -> Self:
        return cls(RowLookup(_NO_ROWS), {}, {})

    @classmethod
    def open(cls, folder: Path, versions: Mapping[str, str], subscriptions: pa.Table) -> Self:
        """`subscriptions` has the rows of all moving regions; those that have left the index are ignored."""
        spaces = {space: MovingRegions.open(SPACES[space], folder, version) for space, version in versions.items()}
        owners = subscriptions.filter(pc.is_null(subscriptions["drained_in"])).select(_COLUMNS)
        return cls(RowLookup(owners.combine_chunks()), spaces, dict(versions))

    def __len__(self) -> int:
        return int(self._owners.rows.num_rows)

    def save(self, folder: Path) -> dict[str, str]:
        """Write the regions durably, if they changed; return the names of the files by space."""
        if self._versions is None:
            self._versions = {space: regions.save(folder) for space, regions in self._spaces.items()}
        return self._versions

    def positions(self) -> pa.Table:
        """The known positions of all regions that are not removed as POSITIONS, with offset 0."""
        tables = [POSITIONS.empty_table()]
        owners = self._owners.rows.filter(pc.is_null(self._owners.rows["until"]))
        for space, regions in self._spaces.items():
            rows = owners.filter(pc.equal(owners["space"], space))
            x, y, time = regions.positions(rows["handle"].to_numpy())
            columns = [rows["node"], pa.repeat(0, rows.num_rows), rows["subscriber"], time, x, y]
            positions = pa.table(dict(zip(POSITIONS.names, columns, strict=True)), POSITIONS)
            tables.append(positions.filter(pc.is_finite(positions["x"])))
        return pa.concat_tables(tables)

    def update(self, changed: pa.Table, positions: pa.Table) -> MovingRegionsUpdate:
        """Apply the rows of SUBSCRIPTIONS that a batch writes, and its positions, ordered by node and offset."""
        changed = changed.filter(pc.is_valid(changed["moving_radius"])).select(_COLUMNS).combine_chunks()
        owners = self._owners
        if changed.num_rows:
            others = pc.invert(pc.is_in(owners.rows["handle"], changed["handle"].combine_chunks()))
            owners = RowLookup(pa.concat_tables([owners.rows.filter(others), changed]).combine_chunks())
        steps = _find_steps(owners, positions)
        if not changed.num_rows and not len(steps.handle) and self._is_settled:
            return MovingRegionsUpdate(self, _NO_BOXES, {}, [])
        spaces: dict[str, MovingRegions] = {}
        boxes, trails, dead_letters = [_NO_BOXES], dict[str, Arrays](), list[DeadLetter]()
        for space in sorted({*self._spaces, *pc.unique(changed["space"]).to_pylist()}):
            regions = spaces[space] = self._spaces.get(space, MovingRegions(SPACES[space])).copy()
            boxes.append(self._add_and_remove(regions, changed.filter(pc.equal(changed["space"], space))))
            applicable = steps.applicable_to(regions, dead_letters)
            if len(applicable.handle):
                trails[space] = applicable.trail(regions)
            boxes.append(regions.move(applicable.handle, applicable.x, applicable.y, applicable.time))
        live = owners
        if pc.any(pc.is_valid(owners.rows["drained_in"])).as_py():
            live = RowLookup(owners.rows.filter(pc.is_null(owners.rows["drained_in"])).combine_chunks())
        return MovingRegionsUpdate(MovingRegionState(live, spaces, None), _last_boxes(boxes), trails, dead_letters)

    def _add_and_remove(self, regions: MovingRegions, changed: pa.Table) -> RegionBoxes:
        """Remove the regions that ended in the last batch; add new ones, which have no position yet."""
        ours = self._owners.rows["handle"].filter(pc.equal(self._owners.rows["space"], regions.space.name))
        if len(ours) < len(regions):
            regions.remove(np.setdiff1d(regions.handles, ours.to_numpy()))
        handles = changed["handle"].to_numpy()
        new = ~np.isin(handles, regions.handles) if len(handles) else np.empty(0, np.bool_)
        if not new.any():
            return _NO_BOXES
        nowhere = np.full(int(new.sum()), np.nan)
        return regions.add(handles[new], nowhere, nowhere, changed["moving_radius"].to_numpy()[new])

    @property
    def _is_settled(self) -> bool:
        """Whether no cleaning up is left to do for regions that have ended or moved."""
        known = sum(map(len, self._spaces.values()))
        return known == self._owners.rows.num_rows and all(regions.is_tight for regions in self._spaces.values())


def read_positions(records: pa.Table) -> tuple[pa.Table, list[DeadLetter]]:
    """The positions among control records as POSITIONS, and the unusable ones."""
    records = records.filter(pc.equal(records["kind"], POSITION))
    columns = [records[name] for name in ("node", "offset", "entity")]
    columns += [records["time"].cast(pa.int64()), records["x"], records["y"]]
    positions = pa.table(columns, schema=POSITIONS)
    tests = (
        pc.is_valid(positions["entity"]),
        pc.and_(pc.greater_equal(positions["time"], EARLIEST), pc.less_equal(positions["time"], LATEST)),
        pc.and_(pc.is_finite(positions["x"]), pc.is_finite(positions["y"])),
    )
    is_complete = pc.fill_null(reduce(pc.and_kleene, tests), False)
    bad = positions.filter(pc.invert(is_complete)).select(["node", "offset"]).to_pylist()
    reason = "a position needs a subscriber, a time between the years 1 and 9999, and a point"
    return positions.filter(is_complete), [DeadLetter(row["node"], row["offset"], reason) for row in bad]


class _RegionSteps(NamedTuple):
    """Positions joined with the regions they apply to, ordered by handle and offset. `row` is a row of `nodes`."""

    handle: Integers
    offset: Integers
    time: Integers
    x: Floats
    y: Floats
    row: Integers
    nodes: pa.ChunkedArray

    def select(self, rows: npt.NDArray[Any]) -> _RegionSteps:
        handle, offset, time, x, y, row = (column[rows] for column in self[:-1])
        return _RegionSteps(handle, offset, time, x, y, row, self.nodes)

    def applicable_to(self, regions: MovingRegions, dead_letters: list[DeadLetter]) -> _RegionSteps:
        """The steps of these regions whose points are valid and which are not older than the known position."""
        mine = self if not len(self.handle) else self.select(regions.has(self.handle))
        reasons = regions.space.bad_points(mine.x, mine.y)
        bad = reasons.astype(np.bool_)
        for row in np.flatnonzero(bad).tolist():
            node, reason = mine.nodes[mine.row[row]].as_py(), f"a position with an invalid point: {reasons[row]}"
            dead_letter = DeadLetter(node, int(mine.offset[row]), reason)
            if dead_letter not in dead_letters:
                dead_letters.append(dead_letter)
        time = np.where(bad, BEFORE_ALL, mine.time)
        same_region = np.diff(mine.handle) == 0
        latest = running_max(time, mine.handle) if (same_region & (np.diff(time) < 0)).any() else time
        return mine.select(~bad & (time >= latest) & (time >= regions.positions(mine.handle)[2]))

    def trail(self, regions: MovingRegions) -> Arrays:
        """The arrays that `CircleTest` reads: where each region was before, and each step."""
        first = np.flatnonzero(np.diff(self.handle, prepend=-1))
        x, y, _ = regions.positions(self.handle[first])
        return {
            "handle": np.insert(self.handle, first, self.handle[first]),
            "since": np.insert(self.offset, first, BEFORE_ALL),
            "x": np.insert(self.x, first, x),
            "y": np.insert(self.y, first, y),
        }


def _find_steps(owners: RowLookup, positions: pa.Table) -> _RegionSteps:
    keys = [positions.column(name).combine_chunks() for name in ("node", "entity")]
    pairs = owners.find(("node", "subscriber"), keys)
    handle, region_since = (owners.rows[name].to_numpy()[pairs.row] for name in ("handle", "since"))
    until = pc.fill_null(owners.rows["until"], NO_END).to_numpy()[pairs.row]
    offset, time, x, y = (positions[name].to_numpy()[pairs.key] for name in ("offset", "time", "x", "y"))
    steps = _RegionSteps(handle, offset, time, x, y, pairs.key, positions["node"])
    rows = np.flatnonzero((region_since < offset) & (offset < until))
    return steps.select(rows[np.argsort(handle[rows], kind="stable")])


def _last_boxes(boxes: list[RegionBoxes]) -> RegionBoxes:
    """The last box of each region."""
    handle, box = np.concatenate([b.handle for b in boxes]), np.concatenate([b.box for b in boxes])
    distinct, last = np.unique(handle[::-1], return_index=True)
    return RegionBoxes(distinct, box[::-1][last])
