"""The letter context: what turns the matched events of a batch into letters, the same in the driver and in tasks."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import orjson
import pyarrow as pa

from roamcast.deliver.batch_records import LetterFile
from roamcast.durable import make_folder
from roamcast.errors import CorruptionError, UnavailableError
from roamcast.pipeline.schemas import BINDINGS, SUBSCRIPTIONS, StateTable
from roamcast.pipeline.state.changes import SubscriptionKey
from roamcast.pipeline.state.control import DeadLetter, Row
from roamcast.pipeline.state.load import LoadRows
from roamcast.pipeline.state.lookups import KeyLookup, ShardedLookup, TableLookup
from roamcast.pipeline.state.manifests import shard_name, split_rows
from roamcast.pipeline.state.partitioning import MatchSample
from roamcast.pipeline.state.parts import Obsolete, Part, PartFolder
from roamcast.pipeline.tasks.context import MatchContext

__all__ = ["LetterContext", "LetterReport", "ShardTables", "SourceKey"]

_LARGEST_HERE: Final = 10_000  # rows that the driver merges; tasks merge more
_MOST_PARTS: Final = 24  # of a shard


class SourceKey(NamedTuple):
    """A source and its home. Nodes assign ids independently. Events of a source may come from other nodes."""

    home: str
    name: str


class LetterContext(NamedTuple):
    """The state that the letters of a batch depend on, and what its control records changed.

    `stacks` has the parts of the tables of the state, each of them in `shards` shards if it is divided. `initial` are
    the new bindings that also bring the last event of their source, `removed` the offsets of removals; `left` are
    subscriptions that leave the index. Of the events at every `sampled`-th offset, `sampled_matches` are reported to
    the driver; none if it is 0.
    """

    match: MatchContext
    pipeline: str = ""
    shards: int = 1
    stacks: Mapping[str, tuple[Part, ...]] = {}
    initial: tuple[Row, ...] = ()
    removed: Mapping[SubscriptionKey, int] = {}
    left: Collection[SubscriptionKey] = ()
    sampled: int = 0
    sampled_matches: int = 0

    @property
    def needs_job(self) -> bool:
        """Whether the driver has left so many parts that tasks should merge them.

        It merges no large ones, which would delay a small batch.
        """
        stacks = (parts for name, parts in self.stacks.items() if "/" in name)
        return max(map(len, stacks), default=0) > _MOST_PARTS

    def open(self) -> ShardTables:
        """Open the tables for all shards, in the driver."""
        return ShardTables(self, PartFolder(self.match.folder / "parts"), range(self.shards), largest=_LARGEST_HERE)

    @contextmanager
    def open_in_task(self, shard: int, divided: Sequence[StateTable]) -> Iterator[ShardTables]:
        """Open the tables for a shard; of the divided ones, only those in `divided`.

        On another host than the driver's, missing files are fetched. Raises UnavailableError for files that have been
        damaged there: another attempt will fetch them again.
        """
        match = self.match
        if match.fetcher is None:
            yield ShardTables(self, PartFolder(match.folder / "parts"), [shard])
            return
        stacks = [match.subscriptions, match.bindings]
        stacks += [self.stacks.get(shard_name(table, shard), ()) for table in divided]
        files = [f"parts/{part.name}" for parts in stacks for part in parts]
        folder = match.fetcher.fetch(files) / "parts"
        make_folder(folder)  # for new parts, if there are no others
        try:
            yield ShardTables(self, PartFolder(folder), [shard])
        except CorruptionError as error:  # files are verified when they are fetched
            match.fetcher.discard(files)
            raise UnavailableError(f"fetching files again after damage: {error.message}", where=error.where) from error


class ShardTables:
    """The tables of the state, open for some shards. What is added to a divided table is visible at once.

    `stacks` has those of these shards that have changed.
    """

    def __init__(
        self, context: LetterContext, folder: PartFolder, shards: Sequence[int], *, largest: float = math.inf
    ) -> None:
        """More than the `largest` number of rows are not merged."""
        self.stacks: dict[str, tuple[Part, ...]] = {}
        self._context = context
        self._folder = folder
        self._shards = shards
        self._largest = largest

    @property
    def subscriptions(self) -> TableLookup:
        return TableLookup(self._folder.folder, SUBSCRIPTIONS.name, self._context.match.subscriptions)

    @property
    def bindings(self) -> TableLookup:
        return TableLookup(self._folder.folder, BINDINGS.name, self._context.match.bindings)

    def lookup(self, table: StateTable) -> KeyLookup:
        """A divided table: the rows of these shards."""
        stacks = [self._stack(shard_name(table, shard)) for shard in self._shards]
        if len(stacks) == 1:
            return TableLookup(self._folder.folder, table.name, stacks[0])
        return ShardedLookup(self._folder.folder, table, stacks)

    def add(self, table: StateTable, rows: pa.Table, obsolete: Obsolete | None = None) -> None:
        """Add rows to a divided table, durably. They belong to these shards."""
        for shard, those in split_rows(table, rows, self._context.shards):
            name = shard_name(table, shard)
            self._replace(name, self._folder.push(table, self._stack(name), those, obsolete, largest=self._largest))

    def merge(self, table: StateTable) -> None:
        """Merge what the driver left unmerged of a divided table."""
        for shard in self._shards:
            name = shard_name(table, shard)
            before = self._stack(name)
            if (after := self._folder.merge(table, before, largest=self._largest)) != before:
                self._replace(name, after)

    def _replace(self, name: str, after: tuple[Part, ...]) -> None:
        fetcher = self._context.match.fetcher
        if fetcher is not None:
            for part in set(after) - set(self._stack(name)):
                fetcher.put(f"parts/{part.name}", self._folder.folder / part.name)
        self.stacks[name] = after

    def _stack(self, name: str) -> tuple[Part, ...]:
        return self.stacks.get(name, self._context.stacks.get(name, ()))


class LetterReport(NamedTuple):
    """What a step did for some shards: the new `stacks`, the letters in `files`, and what is counted.

    `late` are events that came after the bindings of their source had been deleted. `copies` are the offsets, by node,
    of events that were dropped because they are duplicates.
    """

    stacks: Mapping[str, tuple[Part, ...]]
    counters: Mapping[str, int]
    files: Sequence[LetterFile] = ()
    dead_letters: Sequence[DeadLetter] = ()
    late: Sequence[DeadLetter] = ()
    load: LoadRows = LoadRows.empty()
    scanned: int = 0
    matches: int = 0
    sample: Sequence[MatchSample] = ()
    copies: Mapping[str, Sequence[int]] = {}

    def to_json(self) -> bytes:
        return orjson.dumps(
            {
                **self._asdict(),
                "stacks": {name: [list(part) for part in parts] for name, parts in self.stacks.items()},
                "files": [list(file) for file in self.files],
                "dead_letters": [list(letter) for letter in self.dead_letters],
                "late": [list(letter) for letter in self.late],
                "load": [column.tolist() for column in self.load],
                "sample": [list(event) for event in self.sample],
            }
        )

    @classmethod
    def from_json(cls, content: bytes) -> LetterReport:
        values = orjson.loads(content)
        return cls(
            {name: tuple(Part(*part) for part in parts) for name, parts in values["stacks"].items()},
            values["counters"],
            [LetterFile(*file) for file in values["files"]],
            [DeadLetter(*letter) for letter in values["dead_letters"]],
            [DeadLetter(*letter) for letter in values["late"]],
            LoadRows.of_lists(values["load"]),
            values["scanned"],
            values["matches"],
            [MatchSample(*event) for event in values["sample"]],
            values["copies"],
        )
