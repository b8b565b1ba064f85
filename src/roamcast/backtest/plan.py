"""The plan of a backtest: the control records of a subscription, and which events of the archive may matter to it."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.archive.reader import Archive, Tracks
from roamcast.backtest.entities import Call, EntityState, Row, calls, entities_of, fold
from roamcast.backtest.replay import CausedRecord, Replay
from roamcast.backtest.request import NOBODY, Request
from roamcast.bind.discovery.messages import request_of
from roamcast.errors import InputError, NotFoundError
from roamcast.journal import records
from roamcast.journal.bodies import BindingBody, SubscriptionBody
from roamcast.journal.records import BINDING, CHANGED, POSITION, REGISTERED, SNAPSHOT, SNAPSHOT_END, TRACK
from roamcast.journal.tracking import EntityBody, SnapshotBody
from roamcast.model import Box, Position, split_name
from roamcast.node.control.queries import AcceptedQuery, CheckedQuery, Queries
from roamcast.places import Places
from roamcast.settings_model import NodeLimits
from roamcast.space import SPACES, Space

__all__ = ["Plan", "Scan", "SourceKey", "find_node", "make_plan"]

SourceKey = tuple[str, str]
"""The home of a source, and its id there."""

_SLICES: Final = 24  # of the time of a moving region, each with a box of its own
_LIMITS: Final = NodeLimits(subscription_terms=1 << 20, term_length=1 << 20)  # what a node accepts, its settings say


class Scan(NamedTuple):
    """Events that may matter: those accepted at begin <= time < end, in a box, or of some sources."""

    begin: int
    end: int
    box: Box | None = None
    sources: frozenset[SourceKey] | None = None


class Plan(NamedTuple):
    """A subscription in the journal of its `node`. `plan` is its LACL plan.

    `initial` are the sources whose last event before the beginning may matter. `has_other_sources`: sources of other
    nodes qualify as well. `places_changed`: the node had other places at the end than at the beginning.
    """

    node: str
    query: CheckedQuery
    caused: Sequence[CausedRecord]
    scans: Sequence[Scan]
    initial: frozenset[SourceKey]
    has_other_sources: bool
    places_changed: bool


def make_plan(archive: Archive, request: Request, tracks: Tracks | None = None) -> Plan:
    """Follow the entities of the archive. Raises LaclError, NotFoundError for an unknown subscriber or node, and what
    the archive raises if it does not cover the time.
    """
    node = find_node(archive, request)
    tracks = tracks or archive.tracks(node, request.begin, request.end)
    space = SPACES[tracks.body.space]
    places = Places({}, space) if tracks.body.places is None else Places.from_geojson(tracks.body.places, space)
    queries = Queries(places, space, _LIMITS)
    checked, accepted = queries.read(request.lacl), queries.accept(request.lacl)
    subscriber = request.subscriber.id or NOBODY
    if request.subscriber.id is None:
        _check_subscriber(checked, request, space)
    snapshot, changes = _relevant(tracks, checked, subscriber)
    entities = entities_of(snapshot)
    is_earlier = pc.less(changes["written"].cast(pa.int64()), request.begin)
    fold(entities, changes.filter(is_earlier))
    later = list(calls(changes.filter(pc.invert(is_earlier))))
    names = {row["entity"] for call in later for row in call.rows}
    if request.subscriber.id is not None and subscriber not in entities and subscriber not in names:
        raise _unknown_subscriber(tracks, request)
    if request.subscriber.id is None:
        first = [each for each in request.subscriber.track if each.time <= request.at]
        position = Position(subscriber, first[-1].x, first[-1].y, request.at) if first else None
        entities[subscriber] = EntityState("subscriber", {}, position)
        later = _track_calls(archive, node, request, later)
    replay = Replay(request.id, subscriber, accepted, queries)
    replay.begin(entities, request.at, request.begin)
    for call in later:
        replay.apply(call)
    bodies = [row["body"] for row in _rows_of(tracks.changes, SNAPSHOT)]
    return Plan(
        node,
        checked,
        replay.records,
        list(_scans(request, node, accepted, replay.records, space, len(archive.coverage()) > 1)),
        _bound(node, replay.records, initial=True),
        any("@" in name for name, state in entities.items() if state.kind == "source"),
        any(SnapshotBody.from_json(body).places != tracks.body.places for body in bodies),
    )


def find_node(archive: Archive, request: Request) -> str:
    """The node of the subscriber."""
    nodes = [node for node in archive.coverage() if "+" not in node]  # the others are journals of links
    asked = request.subscriber.node
    if asked is not None:
        if asked not in nodes:
            raise NotFoundError(f"the archive has no node {asked!r}", where="node", hint=_one_of(asked, nodes))
        return asked
    if len(nodes) == 1:
        return nodes[0]
    hint = f"give its node: one of {', '.join(sorted(nodes))}"
    raise InputError("the archive has several nodes, and the subscriber is at one of them", where="node", hint=hint)


def _one_of(name: str, names: Iterable[str]) -> str:
    names = sorted(names)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names[:3]
    return f"did you mean {' or '.join(map(repr, close))}?" if close else "there is none"


def _unknown_subscriber(tracks: Tracks, request: Request) -> NotFoundError:
    registered = [*_rows_of(tracks.snapshot, REGISTERED), *_rows_of(tracks.changes, REGISTERED)]
    names = {row["entity"] for row in registered if EntityBody.from_json(row["body"]).kind == "subscriber"}
    id = str(request.subscriber.id)
    return NotFoundError(
        f"the archive has no subscriber {id!r} at this time", where="subscriber", hint=_one_of(id, names)
    )


def _depends_on_subscriber(query: CheckedQuery) -> bool:
    return query.plan == "bind" or query.has_moving_region or query.query.life_control is not None


def _check_subscriber(query: CheckedQuery, request: Request, space: Space) -> None:
    """Raises InputError if the subscription depends on its subscriber, and nothing is known of it."""
    for position in request.subscriber.track:
        space.check_point(position.x, position.y)
    if _depends_on_subscriber(query) and not request.subscriber.track:
        raise InputError(
            "what it receives depends on its subscriber", where="subscriber", hint="give a subscriber or a position"
        )


def _relevant(tracks: Tracks, query: CheckedQuery, subscriber: str) -> tuple[pa.Table, pa.Table]:
    """The snapshot and the changes, of the subscriber and of sources that may satisfy the condition at some time."""
    names = {subscriber}
    changes = tracks.changes
    if not _depends_on_subscriber(query):
        changes = changes.filter(pc.not_equal(changes["kind"], TRACK))
    if query.plan == "bind":
        accepts = request_of(query.query).accepts
        for table in (tracks.snapshot, changes):
            for row in (*_rows_of(table, REGISTERED), *_rows_of(table, CHANGED)):
                body = EntityBody.from_json(row["body"])
                if body.kind == "source" and accepts(body.attributes):
                    names.add(row["entity"])
    ours, frames = pa.array(sorted(names), pa.string()), pa.array([SNAPSHOT, SNAPSHOT_END])
    tables = (tracks.snapshot, changes)
    snapshot, changes = (
        table.filter(pc.or_(pc.is_in(table["entity"], ours), pc.is_in(table["kind"], frames))) for table in tables
    )
    return snapshot, changes


def _rows_of(records: pa.Table, kind: str) -> list[Row]:
    rows: list[Row] = records.filter(pc.equal(records["kind"], kind)).select(["entity", "body"]).to_pylist()
    return rows


def _scans(
    request: Request, node: str, query: AcceptedQuery, caused: Sequence[CausedRecord], space: Space, has_others: bool
) -> Iterator[Scan]:
    if query.body is None:
        if sources := _bound(node, caused):
            yield Scan(request.begin, request.end, None, sources)
        return
    if not any(one.record.kind == records.SUBSCRIPTION for one in caused):
        return  # life-control has never let it run
    body = SubscriptionBody.from_json(query.body)
    if body.moving_radius is not None:
        # An event of another node meets the position at the end of its batch, which may be a later one.
        slices = 1 if has_others else _SLICES
        yield from _moving_scans(request, body.moving_radius, caused, space, slices)
    else:
        yield Scan(request.begin, request.end, body.box)


def _moving_scans(
    request: Request, radius: float, caused: Sequence[CausedRecord], space: Space, count: int
) -> Iterator[Scan]:
    """The time of a moving region in slices, each with a box around all positions that may count in it."""
    moves = [one for one in caused if one.record.kind == POSITION]
    size = max(1, -(-len(moves) // count))
    slices: list[list[CausedRecord]] = []
    for move in moves:
        # Events written at the same time may come before or after a move, so such moves are in one slice.
        if slices and (len(slices[-1]) < size or slices[-1][-1].written == move.written):
            slices[-1].append(move)
        else:
            slices.append([move])
    begins = [request.begin if count == 1 else max(request.begin, moves[0].written) for moves in slices]
    before: list[CausedRecord] = []
    for moves, begin, end in zip(slices, begins, [*begins[1:], request.end], strict=True):
        yield Scan(begin, end, _box_around([*before, *moves], radius, space))
        before = moves[-1:]


def _box_around(moves: Sequence[CausedRecord], radius: float, space: Space) -> Box:
    x, y = (np.array([getattr(one.record, axis) for one in moves]) for axis in ("x", "y"))
    corners = [space.box_around(west, south, radius) for west in (x.min(), x.max()) for south in (y.min(), y.max())]
    sides = list(zip(*corners, strict=True))
    if any(corner.min_x > corner.max_x for corner in corners):
        return Box(-180.0, min(sides[1]), 180.0, max(sides[3]))
    return Box(min(sides[0]), min(sides[1]), max(sides[2]), max(sides[3]))


def _bound(node: str, caused: Sequence[CausedRecord], *, initial: bool = False) -> frozenset[SourceKey]:
    """The sources that are bound at some time; or those whose last event the first binding brings."""
    bindings = [one.record for one in caused if one.record.kind == BINDING]
    if initial:
        bindings = [record for record in bindings if BindingBody.from_json(record.body).initial]
    names = (split_name(record.entity or "") for record in bindings)
    return frozenset((home or node, id) for id, home in names)


def _track_calls(archive: Archive, node: str, request: Request, later: Sequence[Call]) -> list[Call]:
    """The moves of somebody who was never registered, among the changes of the node: after what it had written then."""
    moves = [one for one in request.subscriber.track if request.at < one.time and one.time < request.end]
    if not moves:
        return list(later)
    columns = ("node", "offset", "written", "batch")
    rows = [(call.written, call.offset, call.batch) for call in later]
    for events in archive.events(request.begin, request.end, columns=columns):
        own = events.filter(pc.equal(events["node"], node))
        values = (own[name].cast(pa.int64()).to_pylist() for name in ("written", "offset", "batch"))
        rows += zip(*values, strict=True)
    rows.sort()
    written = [row[0] for row in rows]
    made = []
    for move in moves:
        _, offset, batch = rows[at - 1] if (at := bisect_left(written, move.time)) else (0, 0, -1)
        row = {"kind": TRACK, "entity": NOBODY, "x": move.x, "y": move.y, "time": move.time}
        made.append(Call(offset, batch, move.time, move.time, [row]))
    return sorted([*later, *made], key=attrgetter("offset"))
