"""Moving regions as part of the state: whose they are, where they are, and where they were within a batch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.journal.records import POSITION
from roamcast.match.index.moving import NEVER, CircleTest, MovingRegions, RegionBoxes
from roamcast.match.index.segments import Arrays, SegmentFolder
from roamcast.pipeline.schemas import EARLIEST, LATEST, POSITIONS, SUBSCRIPTIONS
from roamcast.pipeline.state.control import SetAside
from roamcast.pipeline.state.lookups import Lookup
from roamcast.space import SPACES, Floats

__all__ = ["Moving", "Regions", "Told", "positions_of"]

Integers: TypeAlias = npt.NDArray[np.int64]

_OWN: Final = ("node", "subscriber", "handle", "space", "around", "since", "until")
_NOBODY: Final = pa.schema([SUBSCRIPTIONS.schema.field(name) for name in _OWN]).empty_table()
_UNMOVED: Final = RegionBoxes(np.empty(0, np.int64), np.empty((0, 4)))
_FOREVER: Final = np.iinfo(np.int64).max


class Moving(NamedTuple):
    """The moving regions of one space, as the executors of a batch open them. See `match.moving`."""

    space: str
    version: str
    trail: str | None

    def open(self, folder: Path) -> CircleTest:
        return CircleTest(SPACES[self.space], folder, self.version, self.trail)


class Told(NamedTuple):
    """What a batch makes of the regions. `trails` tell by space where those that moved were within the batch.

    `boxes` are the boxes that the index is to have: of new regions, and of those that have left theirs.
    """

    regions: Regions
    boxes: RegionBoxes
    trails: Mapping[str, Arrays]
    set_aside: list[SetAside]

    def save(self, folder: Path) -> tuple[Moving, ...]:
        """Durable when it returns."""
        files = SegmentFolder(folder)
        trails = {space: files.write(trail) for space, trail in self.trails.items()}
        return tuple(
            Moving(space, version, trails.get(space)) for space, version in self.regions.versions(folder).items()
        )


class Regions:
    """All moving regions of a state. A value: what a batch makes of it is another.

    A position counts for the regions of its subscriber that are in force at its place in the journal; one that is older
    than what is known of a region counts for nothing, as a node that crashed may tell its last ones again.
    """

    def __init__(self, owners: Lookup, where: Mapping[str, MovingRegions], versions: dict[str, str] | None) -> None:
        self._owners = owners
        self._where = where
        self._versions = versions

    @classmethod
    def none(cls) -> Self:
        return cls(Lookup(_NOBODY), {}, {})

    @classmethod
    def open(cls, folder: Path, versions: Mapping[str, str], subscriptions: pa.Table) -> Self:
        """`subscriptions` has the rows of all moving regions; those that were removed may be left out."""
        where = {space: MovingRegions.open(SPACES[space], folder, version) for space, version in versions.items()}
        owners = subscriptions.filter(pc.is_null(subscriptions["until"])).select(_OWN)
        return cls(Lookup(owners.combine_chunks()), where, dict(versions))

    def __len__(self) -> int:
        return int(self._owners.rows.num_rows)

    def versions(self, folder: Path) -> dict[str, str]:
        """The files that hold it, by space; they are durable."""
        if self._versions is None:
            self._versions = {space: regions.save(folder) for space, regions in self._where.items()}
        return self._versions

    def positions(self) -> pa.Table:
        """The positions that make the regions known where they are, at a place after all of them."""
        tables = [POSITIONS.empty_table()]
        for space, regions in self._where.items():
            rows = self._owners.rows.filter(pc.equal(self._owners.rows["space"], space))
            x, y, time = regions.positions(rows["handle"].to_numpy())
            columns = [rows["node"], pa.repeat(0, rows.num_rows), rows["subscriber"], time, x, y]
            told = pa.table(dict(zip(POSITIONS.names, columns, strict=True)), POSITIONS)
            tables.append(told.filter(pc.is_finite(told["x"])))
        return pa.concat_tables(tables)

    def after(self, changed: pa.Table, positions: pa.Table) -> Told:
        """`changed` are the rows of SUBSCRIPTIONS that a batch writes, `positions` are by node and place."""
        changed = changed.filter(pc.is_valid(changed["around"])).select(_OWN).combine_chunks()
        owners = self._owners
        if changed.num_rows:
            others = pc.invert(pc.is_in(owners.rows["handle"], changed["handle"].combine_chunks()))
            owners = Lookup(pa.concat_tables([owners.rows.filter(others), changed]).combine_chunks())
        steps = _steps(owners, positions)
        if not changed.num_rows and not len(steps.handle) and self._is_settled:
            return Told(self, _UNMOVED, {}, [])
        where: dict[str, MovingRegions] = {}
        boxes, trails, set_aside = [_UNMOVED], dict[str, Arrays](), list[SetAside]()
        for space in sorted({*self._where, *pc.unique(changed["space"]).to_pylist()}):
            regions = where[space] = self._where.get(space, MovingRegions(SPACES[space])).copy()
            boxes.append(self._replaced(regions, changed.filter(pc.equal(changed["space"], space))))
            here = steps.of(regions, set_aside)
            if len(here.handle):
                trails[space] = here.trail(regions)
            boxes.append(regions.move(here.handle, here.x, here.y, here.time))
        live = owners
        if pc.any(pc.is_valid(owners.rows["until"])).as_py():
            live = Lookup(owners.rows.filter(pc.is_null(owners.rows["until"])).combine_chunks())
        return Told(Regions(live, where, None), _last_boxes(boxes), trails, set_aside)

    def _replaced(self, regions: MovingRegions, changed: pa.Table) -> RegionBoxes:
        """Remove the regions that ended with the last batch, and add those that are new, nowhere yet."""
        mine = self._owners.rows["handle"].filter(pc.equal(self._owners.rows["space"], regions.space.name))
        if len(mine) < len(regions):
            regions.remove(np.setdiff1d(regions.handles, mine.to_numpy()))
        handles = changed["handle"].to_numpy()
        new = ~np.isin(handles, regions.handles) if len(handles) else np.empty(0, np.bool_)
        if not new.any():
            return _UNMOVED
        nowhere = np.full(int(new.sum()), np.nan)
        return regions.add(handles[new], nowhere, nowhere, changed["around"].to_numpy()[new])

    @property
    def _is_settled(self) -> bool:
        """Nothing is left to be done for those that have ended or moved."""
        known = sum(map(len, self._where.values()))
        return known == self._owners.rows.num_rows and all(regions.is_tight for regions in self._where.values())


def positions_of(records: pa.Table) -> tuple[pa.Table, list[SetAside]]:
    """The positions among control records, as POSITIONS; and those that cannot be used."""
    records = records.filter(pc.equal(records["kind"], POSITION))
    told = pa.table([records[name] for name in ("node", "offset", "entity")]
                    + [records["time"].cast(pa.int64()), records["x"], records["y"]], schema=POSITIONS)  # fmt: skip
    tests = (
        pc.is_valid(told["entity"]),
        pc.and_(pc.greater_equal(told["time"], EARLIEST), pc.less_equal(told["time"], LATEST)),
        pc.and_(pc.is_finite(told["x"]), pc.is_finite(told["y"])),
    )
    whole = pc.fill_null(reduce(pc.and_kleene, tests), False)
    broken = told.filter(pc.invert(whole)).select(["node", "offset"]).to_pylist()
    reason = "a position needs a subscriber, a time that has a date, and a point"
    return told.filter(whole), [SetAside(row["node"], row["offset"], reason) for row in broken]


class _Steps(NamedTuple):
    """Positions and the regions they count for, ordered by handle, and of one region in their order.

    `at` are rows of `nodes`.
    """

    handle: Integers
    since: Integers
    time: Integers
    x: Floats
    y: Floats
    at: Integers
    nodes: pa.ChunkedArray

    def chosen(self, rows: npt.NDArray[Any]) -> _Steps:
        handle, since, time, x, y, at = (column[rows] for column in self[:-1])
        return _Steps(handle, since, time, x, y, at, self.nodes)

    def of(self, regions: MovingRegions, set_aside: list[SetAside]) -> _Steps:
        """Those of these regions that count: points of the space, not older than what was known."""
        mine = self if not len(self.handle) else self.chosen(regions.has(self.handle))
        reasons = regions.space.bad_points(mine.x, mine.y)
        bad = reasons.astype(np.bool_)
        for row in np.flatnonzero(bad).tolist():
            reason = f"a position of no use: {reasons[row]}"
            item = SetAside(mine.nodes[mine.at[row]].as_py(), int(mine.since[row]), reason)
            if item not in set_aside:
                set_aside.append(item)
        time = np.where(bad, NEVER, mine.time)
        same = np.diff(mine.handle) == 0
        if (same & (np.diff(time) < 0)).any():
            latest = pd.Series(time).groupby(mine.handle, sort=False).cummax().to_numpy()
        else:
            latest = time
        return mine.chosen(~bad & (time >= latest) & (time >= regions.positions(mine.handle)[2]))

    def trail(self, regions: MovingRegions) -> Arrays:
        """As `CircleTest` wants it: where the regions were before, and each step."""
        first = np.flatnonzero(np.diff(self.handle, prepend=-1))
        x, y, _ = regions.positions(self.handle[first])
        return {
            "handle": np.insert(self.handle, first, self.handle[first]),
            "since": np.insert(self.since, first, NEVER),
            "x": np.insert(self.x, first, x),
            "y": np.insert(self.y, first, y),
        }


def _steps(owners: Lookup, positions: pa.Table) -> _Steps:
    keys = [positions.column(name).combine_chunks() for name in ("node", "entity")]
    found = owners.find(("node", "subscriber"), keys)
    handle, since = (owners.rows[name].to_numpy()[found.row] for name in ("handle", "since"))
    until = pc.fill_null(owners.rows["until"], _FOREVER).to_numpy()[found.row]
    place, time, x, y = (positions[name].to_numpy()[found.key] for name in ("offset", "time", "x", "y"))
    steps = _Steps(handle, place, time, x, y, found.key, positions["node"])
    rows = np.flatnonzero((since < place) & (place < until))
    return steps.chosen(rows[np.argsort(handle[rows], kind="stable")])


def _last_boxes(boxes: list[RegionBoxes]) -> RegionBoxes:
    """Of several boxes of a region the last."""
    handle, box = np.concatenate([b.handle for b in boxes]), np.concatenate([b.box for b in boxes])
    distinct, last = np.unique(handle[::-1], return_index=True)
    return RegionBoxes(distinct, box[::-1][last])
