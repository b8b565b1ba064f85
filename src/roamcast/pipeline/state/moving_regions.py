"""Moving regions as part of the state: whose they are, where they are, and where they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.errors import InputError
from roamcast.journal.bodies import PositionBody
from roamcast.journal.records import POSITION
from roamcast.match.index.earlier_positions import EarlierPositions
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
    """The files of the moving regions of one space: `version` and `trail` see `match.index.moving`, `earlier` see
    `match.index.earlier_positions`. A trail is for the tasks of one batch.
    """

    space: str
    version: str
    earlier: str | None
    trail: str | None = None

    @property
    def names(self) -> Iterator[str]:
        return (name for name in self[1:] if name is not None)

    def open(self, folder: Path) -> CircleTest:
        return CircleTest(SPACES[self.space], folder, self.version, self.trail, self.earlier)


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
        trails = {space: SegmentFolder(folder).write(trail) for space, trail in self.trails.items()}
        return tuple(files._replace(trail=trails.get(files.space)) for files in self.regions.save(folder))


class MovingRegionState:
    """All moving regions of a state. Immutable: `update` returns another.

    A position applies to the regions of its subscriber that exist at its offset in the journal. One that is older than
    the known position is ignored: a node that crashed may journal its last positions again. Forwarded events are
    matched with the positions at their time, see `EarlierPositions`.
    """

    def __init__(
        self,
        owners: RowLookup,
        spaces: Mapping[str, MovingRegions],
        earlier: Mapping[str, EarlierPositions],
        files: tuple[MovingRegionFiles, ...] | None = None,
    ) -> None:
        """By space: the regions, and their earlier positions. `files`: where this is written, if it is."""
        self._owners = owners
        self._spaces = spaces
        self._earlier = earlier
        self._files = files

    @classmethod
    def empty(cls) -> Self:
        return cls(RowLookup(_NO_ROWS), {}, {})

    @classmethod
    def open(cls, folder: Path, files: tuple[MovingRegionFiles, ...], subscriptions: pa.Table) -> Self:
        """`subscriptions` has the rows of all moving regions; those that have left the index are ignored."""
        spaces = {each.space: MovingRegions.open(SPACES[each.space], folder, each.version) for each in files}
        earlier = {each.space: EarlierPositions.open(folder, each.earlier) for each in files}
        owners = subscriptions.filter(pc.is_null(subscriptions["drained_in"])).select(_COLUMNS)
        return cls(RowLookup(owners.combine_chunks()), spaces, earlier, files)

    def __len__(self) -> int:
        return int(self._owners.rows.num_rows)

    def save(self, folder: Path) -> tuple[MovingRegionFiles, ...]:
        """Write what has changed durably."""
        if self._files is None:
            self._files = tuple(
                MovingRegionFiles(space, regions.save(folder), self._earlier[space].save(folder))
                for space, regions in self._spaces.items()
            )
        return self._files

    def anchor(self) -> MovingRegionsUpdate:
        """The same regions for a new index, with the boxes of all."""
        spaces = {space: regions.copy() for space, regions in self._spaces.items()}
        earlier = {space: positions.copy() for space, positions in self._earlier.items()}
        boxes = [_NO_BOXES, *(regions.anchor(earlier[space]) for space, regions in spaces.items())]
        return MovingRegionsUpdate(MovingRegionState(self._owners, spaces, earlier), _last_boxes(boxes), {}, [])

    def update(self, changed: pa.Table, positions: pa.Table, drained: Mapping[str, int]) -> MovingRegionsUpdate:
        """Apply the rows of SUBSCRIPTIONS that a batch writes, and its positions, ordered by node and offset.

        Moves up to the offsets `drained` of nodes are forgotten with the next batch.
        """
        changed = changed.filter(pc.is_valid(changed["moving_radius"])).select(_COLUMNS).combine_chunks()
        owners = self._owners
        if changed.num_rows:
            others = pc.invert(pc.is_in(owners.rows["handle"], changed["handle"].combine_chunks()))
            owners = RowLookup(pa.concat_tables([owners.rows.filter(others), changed]).combine_chunks())
        steps = _find_steps(owners, positions)
        if not changed.num_rows and not len(steps.handle) and not drained and self._is_settled:
            return MovingRegionsUpdate(self, _NO_BOXES, {}, [])
        spaces, earlier = dict[str, MovingRegions](), dict[str, EarlierPositions]()
        boxes, trails, dead_letters = [_NO_BOXES], dict[str, Arrays](), list[DeadLetter]()
        for space in sorted({*self._spaces, *pc.unique(changed["space"]).to_pylist()}):
            regions = spaces[space] = self._spaces.get(space, MovingRegions(SPACES[space])).copy()
            boxes.append(self._add_and_remove(regions, changed.filter(pc.equal(changed["space"], space))))
            before = self._earlier.get(space, EarlierPositions.none())
            before = before.select(regions.has(before.arrays["handle"]) & ~before.arrays["drained"])
            applicable = steps.applicable_to(regions, dead_letters)
            if len(applicable.handle):
                trails[space] = applicable.trail(regions)
                before = before.add(applicable.moves(trails[space]))
            earlier[space] = before.drain(_limits(owners, drained, before.arrays["handle"])) if drained else before
            boxes.append(regions.move(applicable.handle, applicable.x, applicable.y, applicable.time, earlier[space]))
        live = owners
        if pc.any(pc.is_valid(owners.rows["drained_in"])).as_py():
            live = RowLookup(owners.rows.filter(pc.is_null(owners.rows["drained_in"])).combine_chunks())
        state = MovingRegionState(live, spaces, earlier)
        return MovingRegionsUpdate(state, _last_boxes(boxes), trails, dead_letters)

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
        has_drained = any(earlier.has_drained for earlier in self._earlier.values())
        is_tight = all(regions.is_tight for regions in self._spaces.values())
        return known == self._owners.rows.num_rows and is_tight and not has_drained


def read_positions(records: pa.Table) -> tuple[pa.Table, list[DeadLetter]]:
    """The positions among control records as POSITIONS, and the unusable ones."""
    records = records.filter(pc.equal(records["kind"], POSITION))
    columns = [records[name] for name in ("node", "offset", "entity")]
    columns += [records["time"].cast(pa.int64()), records["x"], records["y"]]
    begin, end, is_readable = _read_bodies(records["body"].combine_chunks())
    positions = pa.table([*columns, begin, end], schema=POSITIONS)
    tests = (
        pc.is_valid(positions["entity"]),
        pc.and_(pc.greater_equal(positions["time"], EARLIEST), pc.less_equal(positions["time"], LATEST)),
        pc.and_(pc.is_finite(positions["x"]), pc.is_finite(positions["y"])),
        is_readable,
    )
    is_complete = pc.fill_null(reduce(pc.and_kleene, tests), False)
    bad = positions.filter(pc.invert(is_complete)).select(["node", "offset"]).to_pylist()
    reason = "a position needs a subscriber, a time between the years 1 and 9999, a point, and a readable body or none"
    return positions.filter(is_complete), [DeadLetter(row["node"], row["offset"], reason) for row in bad]


def _read_bodies(bodies: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """The columns `begin` and `end`, and which bodies are readable. Many positions have the same body."""
    encoded = bodies.dictionary_encode()
    read = [_read_body(text) for text in encoded.dictionary.to_pylist()]
    begin, end = (pa.array([times and times[side] for times in read], pa.int64()) for side in (0, 1))
    is_readable = pc.fill_null(pa.array([times is not None for times in read], pa.bool_()).take(encoded.indices), True)
    return begin.take(encoded.indices), end.take(encoded.indices), is_readable


def _read_body(text: str) -> tuple[int, int] | None:
    try:
        body = PositionBody.from_json(text)
    except InputError:
        return None
    return body.begin, body.end


class _RegionSteps(NamedTuple):
    """Positions joined with the regions they apply to, ordered by handle and offset. `row` is a row of `nodes`.

    `begin` and `end` are BEFORE_ALL if a position replaces the one before for all forwarded events.
    """

    handle: Integers
    offset: Integers
    time: Integers
    x: Floats
    y: Floats
    begin: Integers
    end: Integers
    row: Integers
    nodes: pa.ChunkedArray

    def select(self, rows: npt.NDArray[Any]) -> _RegionSteps:
        handle, offset, time, x, y, begin, end, row = (column[rows] for column in self[:-1])
        return _RegionSteps(handle, offset, time, x, y, begin, end, row, self.nodes)

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

    def moves(self, trail: Arrays) -> Arrays:
        """The arrays of `EarlierPositions`: the steps after which the position before still counts."""
        at = np.flatnonzero(trail["since"] != BEFORE_ALL)  # the row of each step, next to that of the one before
        x, y = trail["x"][at - 1], trail["y"][at - 1]
        kept = (self.end != BEFORE_ALL) & ~np.isnan(x) & ((x != self.x) | (y != self.y))
        columns = {
            "handle": self.handle, "offset": self.offset, "begin": self.begin, "end": self.end, "x": x, "y": y,
            "drained": np.zeros(len(x), np.bool_),
        }  # fmt: skip
        return {name: column[kept] for name, column in columns.items()}


def _find_steps(owners: RowLookup, positions: pa.Table) -> _RegionSteps:
    keys = [positions.column(name).combine_chunks() for name in ("node", "entity")]
    pairs = owners.find(("node", "subscriber"), keys)
    handle, region_since = (owners.rows[name].to_numpy()[pairs.row] for name in ("handle", "since"))
    until = pc.fill_null(owners.rows["until"], NO_END).to_numpy()[pairs.row]
    offset, time, x, y = (positions[name].to_numpy()[pairs.key] for name in ("offset", "time", "x", "y"))
    begin, end = (pc.fill_null(positions[name], BEFORE_ALL).to_numpy()[pairs.key] for name in ("begin", "end"))
    steps = _RegionSteps(handle, offset, time, x, y, begin, end, pairs.key, positions["node"])
    rows = np.flatnonzero((region_since < offset) & (offset < until))
    return steps.select(rows[np.argsort(handle[rows], kind="stable")])


def _limits(owners: RowLookup, drained: Mapping[str, int], handle: Integers) -> Integers:
    """The offset up to which the moves of each region are drained."""
    nodes = owners.rows["node"].combine_chunks().dictionary_encode()
    limits = np.array([drained.get(node, 0) for node in nodes.dictionary.to_pylist()], np.int64)
    handles = owners.rows["handle"].to_numpy()
    order = np.argsort(handles)
    limit: Integers = limits[nodes.indices.to_numpy()[order[np.searchsorted(handles, handle, sorter=order)]]]
    return limit


def _last_boxes(boxes: list[RegionBoxes]) -> RegionBoxes:
    """The last box of each region."""
    handle, box = np.concatenate([b.handle for b in boxes]), np.concatenate([b.box for b in boxes])
    distinct, last = np.unique(handle[::-1], return_index=True)
    return RegionBoxes(distinct, box[::-1][last])
