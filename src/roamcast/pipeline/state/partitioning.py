"""The port of partitioning policies: which shards of a partitioned index hold a subscription.

The driver keeps a policy from batch to batch. It decides by the committed state and the batch alone, so that a repeated
batch decides the same again. Shards are the authority: what a policy decides is done by moving rows between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import IndexRows
from roamcast.match.partitioners.categories import CategoryParameters, Distribution
from roamcast.pipeline.state.load import LoadRows
from roamcast.pipeline.state.lookups import Integers, TableLookup
from roamcast.pipeline.state.parts import Part

__all__ = [
    "IMBALANCE", "MATCHERS", "MEASURED", "NONE_MOVE", "PARTITIONERS", "BatchReport", "Masks", "MatchSample",
    "MatcherName", "PartitionerName", "PartitioningSettings", "PartitioningState", "ShardPolicy",
]  # fmt: skip

Masks: TypeAlias = npt.NDArray[np.uint64]
PartitionerName: TypeAlias = Literal["curve", "drtcluster", "kdtree", "hashing"]
MatcherName: TypeAlias = Literal["index", "one_by_one"]

PARTITIONERS: Final[tuple[PartitionerName, ...]] = ("curve", "drtcluster", "kdtree", "hashing")
MATCHERS: Final[tuple[MatcherName, ...]] = ("index", "one_by_one")
MEASURED: Final[frozenset[str]] = frozenset({"drtcluster", "kdtree"})
"""Partitioners that need the load of parts of a shard. Nothing that affects it may depend on when a process started."""
IMBALANCE: Final = 1.2
"""Subscriptions move when the load of the busiest worker is this many times the mean."""
NONE_MOVE: Final[Integers] = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class PartitioningSettings:
    """The partitioner, and the parameters of those that have some.

    `curve` and `kdtree` balance the load if the busiest worker has `imbalance` times the mean. `categories` and
    `distribution` are for `drtcluster`. With the `matcher` one_by_one, which is for experiments, shards compare events
    with the subscriptions of some units (see `match.partitioners.one_by_one`).
    """

    partitioner: PartitionerName = "curve"
    imbalance: float = IMBALANCE
    categories: CategoryParameters = field(default_factory=lambda: CategoryParameters(500))
    distribution: Distribution = field(default_factory=Distribution)
    matcher: MatcherName = "index"

    @property
    def compared_units(self) -> int:
        """As many units as categories, for all partitioners; 0 if the index is searched."""
        return self.categories.max_categories if self.matcher == "one_by_one" else 0


class PartitioningState(NamedTuple):
    """The state of a policy in a manifest: small `values`, and `tables` of which a batch writes what it changes."""

    partitioner: str
    values: Mapping[str, Any]
    tables: Mapping[str, tuple[Part, ...]]

    def to_json(self) -> dict[str, Any]:
        tables = {name: [part._asdict() for part in parts] for name, parts in self.tables.items()}
        return {"partitioner": self.partitioner, "values": dict(self.values), "tables": tables}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> PartitioningState:
        tables = {name: tuple(Part(**part) for part in parts) for name, parts in content["tables"].items()}
        return cls(content["partitioner"], dict(content["values"]), tables)


class MatchSample(NamedTuple):
    """An event, the number of subscriptions that it matched, and the rows of some of these, evenly spread."""

    node: str
    offset: int
    matches: int
    rows: Sequence[int]


class BatchReport(NamedTuple):
    """What a batch shows. `sample` has some events in order, with rows of the lookup `subscriptions` that they matched.

    The load is to be balanced if it `is_due`.
    """

    load: LoadRows
    sample: Sequence[MatchSample]
    subscriptions: TableLookup
    is_due: bool


class ShardPolicy(Protocol):
    """Decides placement. The methods are called in the order in which they are listed, from batch to batch."""

    @property
    def sampled_matches(self) -> int:
        """How many matches of an event it learns from at most; 0 if it needs no sample."""

    @property
    def follows_boxes(self) -> bool:
        """Whether a moving region is placed by its box."""

    def begin_batch(self) -> Integers | None:
        """Carry out what the last batch planned; return the handles of all rows that may move, None for any row."""

    def replace_boxes(self, handle: Integers, box: npt.NDArray[np.float64]) -> None:
        """Moving regions have other boxes now."""

    def start(self, rows: IndexRows) -> None:
        """Adapt to the first rows, before they are added to empty shards."""

    def remove(self, handles: Integers) -> None:
        """Rows leave the index."""

    def add(self, rows: IndexRows) -> Integers:
        """Add rows, with new and ascending handles; return the handles of others that may move because of it."""

    def masks(self, rows: IndexRows) -> Masks:
        """The shards that hold each of these rows now, a bit for each."""

    def save_placement(self) -> PartitioningState:
        """The state that tasks of this batch need. Files are durable."""

    def end_batch(self, report: BatchReport) -> None:
        """Learn from the batch, and plan for the next."""

    def save(self) -> PartitioningState:
        """The whole state. Files are durable."""

    def describe(self) -> Mapping[str, Any]:
        """What users are shown, as JSON."""
