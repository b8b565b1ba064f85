"""Inside the executors: events meet the subscriptions and the bindings of the state, loaded once per process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.errors import CorruptionError
from roamcast.journal.records import EVENT, with_homes
from roamcast.match.index.index import Candidates, Index
from roamcast.match.index.lsm import SegmentRef
from roamcast.match.index.moving import CircleTest
from roamcast.match.index.segments import file_name
from roamcast.match.port import Events
from roamcast.match.routing.router import Router, RoutingTableRef
from roamcast.pipeline.schemas import BINDINGS, EARLIEST, LATEST, SIFTED_SCHEMA, SUBSCRIPTIONS
from roamcast.pipeline.state.indexing import open_index, open_router
from roamcast.pipeline.state.lookups import Found, Integers, Lookups
from roamcast.pipeline.state.moving_regions import Moving
from roamcast.pipeline.state.parts import Part
from roamcast.pipeline.state.shards import Partition
from roamcast.pipeline.state.state_server import Supplier
from roamcast.pipeline.tasks.bindings import join
from roamcast.pipeline.tasks.event_columns import Facts
from roamcast.pipeline.tasks.exact import passes

__all__ = ["Sieve", "State", "as_json", "fetched", "has_all_it_needs", "lists", "match", "rows_with", "sift"]

_ASKED: Final = ("node", "since", "until", "removed_in", "circle", "area", "source", "on", "space", "around")
_END: Final = np.iinfo(np.int64).max


class Sieve(NamedTuple):
    """Which state a batch's events meet: parts and segments under `folder`. The same in the driver and the executors.

    `sources` are those, as pairs (node, source), of which every event is told, not the newest alone. Executors on other
    hosts than the driver's have a `supplier` of the files. With a `partition` the index is in its shares, and tasks get
    sieves with what they need of it; `routes` if they route.
    """

    folder: Path
    subscriptions: tuple[Part, ...]
    bindings: tuple[Part, ...]
    stack: tuple[SegmentRef, ...]
    batch: int
    sources: frozenset[tuple[str, str]] = frozenset()
    moving: tuple[Moving, ...] = ()
    supplier: Supplier | None = None
    partition: Partition | None = None
    routes: tuple[RoutingTableRef, ...] = ()

    @property
    def files(self) -> Iterator[str]:
        """All it consists of, by their names under the folder."""
        yield from (f"parts/{part.name}" for part in (*self.subscriptions, *self.bindings))
        layers = (name for layer in self.stack for name in (layer.segment, layer.tombstones))
        versions = (name for moving in self.moving for name in (moving.version, moving.trail))
        tables = (routes.table for routes in self.routes)
        yield from (f"segments/{file_name(name)}" for name in (*layers, *versions, *tables) if name)

    def open_subscriptions(self) -> Lookups:
        return Lookups(self.folder / "parts", SUBSCRIPTIONS.name, self.subscriptions)

    def open_bindings(self) -> Lookups:
        return Lookups(self.folder / "parts", BINDINGS.name, self.bindings)

    def open_index(self) -> Index:
        return open_index(self.folder / "segments", self.stack)

    def open_router(self) -> Router:
        return open_router(self.folder / "segments", self.routes)

    def open_moving(self) -> tuple[CircleTest, ...]:
        return tuple(moving.open(self.folder / "segments") for moving in self.moving)


def sift(sieve: Sieve) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for mapInArrow: records in, a row of SIFTED_SCHEMA for each event out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        state = fetched(sieve)
        for records in batches:
            yield _sifted(with_homes(records.filter(pc.equal(records["kind"], EVENT))), state, sieve)

    return run


class State(NamedTuple):
    """What a sieve names, opened."""

    segments: Index
    moving: tuple[CircleTest, ...]
    subscriptions: Lookups
    bindings: Lookups
    router: Router


def fetched(sieve: Sieve) -> State:
    """The state, by way of this host's cache if it is another than the driver's."""
    if sieve.supplier is None:
        return _opened(sieve)
    files = list(sieve.files)
    here = sieve._replace(folder=sieve.supplier.at_hand(files))
    try:
        return _opened(here)
    except CorruptionError:  # of the cache: what is fetched is verified
        sieve.supplier.drop(files)
        sieve.supplier.at_hand(files)
        return _opened(here)


def _opened(sieve: Sieve) -> State:
    return State(
        sieve.open_index(), sieve.open_moving(), sieve.open_subscriptions(), sieve.open_bindings(), sieve.open_router()
    )


def _sifted(records: pa.RecordBatch, state: State, sieve: Sieve) -> pa.RecordBatch:
    whole = has_all_it_needs(records)
    rows = np.flatnonzero(whole.to_numpy(zero_copy_only=False))
    events = records.take(pa.array(rows))
    facts = Facts(events)
    (matched, scanned), bound = match(facts, state, sieve.batch), join(facts, state.bindings)
    told = np.unique(np.concatenate((matched.key, bound.key, _newest(events), _of(events, sieve.sources))))
    json: npt.NDArray[np.object_] = np.full(records.num_rows, None, dtype=np.object_)
    json[rows[told]] = as_json(events.take(pa.array(told)))
    event = pa.array(json, pa.string())
    columns = {
        **{name: records[name] for name in ("node", "offset", "home", "entity", "seq")},
        "time": records["time"].cast(pa.int64()),
        "whole": whole,
        "event": event,
        "attributes": pc.if_else(pc.is_valid(event), records["body"], None),
        "subscriptions": lists(matched, rows, records.num_rows),
        "bindings": lists(bound, rows, records.num_rows),
        "candidates": pa.array(([scanned] + [0] * (records.num_rows - 1))[: records.num_rows], pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns, SIFTED_SCHEMA)


def lists(found: Found, rows: Integers, count: int) -> pa.ListArray:
    """For each of `count` records the rows that were found for it; `found.key` are numbers in `rows`."""
    lengths = np.bincount(rows[found.key], minlength=count)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(found.row, pa.int64()))


def _newest(events: pa.RecordBatch) -> Integers:
    """The event of each source with the highest number, and of its copies the first, by node and offset.

    If that is itself a copy of one that was seen before, there is nothing newer here.
    """
    source = _pairs(events)
    seq, offset = events["seq"].to_numpy(), events["offset"].to_numpy()
    _, node = np.unique(events["node"].to_numpy(zero_copy_only=False), return_inverse=True)
    order = np.lexsort((-offset, -node, seq, source))
    last: Integers = order[np.append(np.diff(source[order]) != 0, True)] if len(order) else order
    return last


def _of(events: pa.RecordBatch, sources: frozenset[tuple[str, str]]) -> Integers:
    if not sources:
        return np.empty(0, np.int64)
    pairs = zip(events["home"].to_pylist(), events["entity"].to_pylist(), strict=True)
    return np.flatnonzero([pair in sources for pair in pairs])


def _pairs(events: pa.RecordBatch) -> Integers:
    """A number for each source."""
    nodes, names = (events[name].dictionary_encode() for name in ("home", "entity"))
    numbers: Integers = nodes.indices.to_numpy() * np.int64(len(names.dictionary)) + names.indices.to_numpy()
    return numbers


def has_all_it_needs(records: pa.RecordBatch) -> pa.Array:
    """Source, number, id, a time that has a date, and a finite point."""
    time = records["time"].cast(pa.int64())
    tests = (
        pc.is_valid(records["entity"]),
        pc.is_valid(records["id"]),
        pc.greater_equal(records["seq"], 1),
        pc.and_(pc.greater_equal(time, EARLIEST), pc.less_equal(time, LATEST)),
        pc.and_(pc.is_finite(records["x"]), pc.is_finite(records["y"])),
    )
    return pc.fill_null(reduce(pc.and_kleene, tests), False)


def match(facts: Facts, state: State, batch: int) -> tuple[Found, int]:
    """Pairs of rows, of events and of subscriptions, ordered by event; and how many candidates were looked at."""
    events = facts.events
    points = Events(events["x"].to_numpy(), events["y"].to_numpy(), events["terms"])
    portions, scanned = [], 0
    for found in state.segments.candidates(points):
        portions.append(_decided(found, points, facts, state, batch))
        scanned += found.scanned
    key, row = (np.concatenate(columns) for columns in zip(*portions, strict=True))
    return Found(key, row), scanned


def _decided(found: Candidates, points: Events, facts: Facts, state: State, batch: int) -> Found:
    """Of candidates those that match."""
    handles, place = np.unique(found.subscription, return_inverse=True)
    known = rows_with(handles, state.subscriptions)
    rows = state.subscriptions.take(known, _ASKED)
    at = _places(facts.events, found.event, rows["node"].take(pa.array(place)))
    # For each pair no more than that: queries and areas may be long.
    lives = _lives(at, rows.select(["since", "until", "removed_in"]).take(pa.array(place)), batch)
    around = np.flatnonzero(lives & pc.is_valid(rows["around"]).to_numpy()[place])
    if len(around):
        pairs = found.event[around], found.subscription[around], at[around]
        lives[around] = np.logical_or.reduce([inside(points, *pairs) for inside in state.moving])
    kept = np.flatnonzero(lives)
    kept = kept[passes(facts, found.event[kept], rows, place[kept])]
    return Found(found.event[kept], known[place[kept]])


def rows_with(handles: Integers, subscriptions: Lookups) -> Integers:
    """The rows of distinct handles, in their order."""
    found = subscriptions.find(("handle",), [pa.array(handles)])
    if len(found.row) != len(handles):
        hint = "restore the whole pipeline folder, or start a new pipeline with --new"
        raise CorruptionError("the index has subscriptions that the state does not have", hint=hint)
    return found.row


def _places(events: pa.RecordBatch, event: Integers, node: pa.ChunkedArray) -> Integers:
    """Where each event stands in the order of the node beside it.

    Order exists inside a node only: events of other nodes come at the end of the batch.
    """
    same_node = pc.equal(node, events["node"].take(pa.array(event))).to_numpy()
    return np.where(same_node, events["offset"].to_numpy()[event], _END)


def _lives(at: Integers, rows: pa.Table, batch: int) -> npt.NDArray[np.bool_]:
    """Whether an event at each place comes within the life of the subscription beside it.

    Events of other nodes see a subscription in all of a batch it lives in.
    """
    since, never = rows["since"].to_numpy(), np.iinfo(np.int64).max
    until, removed_in = (pc.fill_null(rows[name], never).to_numpy() for name in ("until", "removed_in"))
    lives: npt.NDArray[np.bool_] = (removed_in >= batch) & ((at == _END) | ((since < at) & (at < until)))
    return lives


def as_json(events: pa.RecordBatch) -> list[str]:
    """Each event as its receivers will read it."""
    columns = (events[name].to_pylist() for name in ("id", "entity", "seq", "time", "x", "y", "terms", "readings"))
    return [
        orjson.dumps(
            {
                "id": id_, "source": source, "seq": seq, "time": time, "x": x, "y": y,
                "terms": terms or [], "readings": dict(readings or ()),
            }
        ).decode()
        for id_, source, seq, time, x, y, terms, readings in zip(*columns, strict=True)
    ]  # fmt: skip
