"""Builds the arrays that kernels work on from a world and a protocol."""

from __future__ import annotations

from math import inf, isfinite

import numpy as np
import numpy.typing as npt

from roamcast.collect.protocol.energy import Radio
from roamcast.collect.protocol.rules import CET, DG, Epidemic, SprayAndWait
from roamcast.collect.simulation.communities import Communities, find_communities
from roamcast.collect.simulation.field import FieldWorld
from roamcast.collect.simulation.kernels import layout
from roamcast.collect.simulation.kernels.epidemic import COPIES, EpidemicState
from roamcast.collect.simulation.kernels.layout import Resend, Rows
from roamcast.collect.simulation.schedule import NEVER, Schedule
from roamcast.errors import InputError

__all__ = ["build_epidemic_state", "build_field_state"]

_DELIVERED_ROWS = 1 << 15
_LOG_ROWS = 1 << 17
_MAX_BYTES = 2 << 30
_RESEND = {
    "subscriber": Resend.NEVER,
    "once": Resend.NEVER,
    "contact": Resend.CONTACT,
    "missing": Resend.MISSING,
    "cell": Resend.CELL,
}


def build_field_state(
    world: FieldWorld, protocol: CET | DG, radio: Radio, communities: Communities, schedule: Schedule, *, log_room: int
) -> layout.FieldState:
    """Build the state for CET or DG. `log_room` is the maximum number of transfers in a round, or 0 for no log.

    Raises InputError if the field does not fit into memory.
    """
    sensors, mules, events = world.field.sensors, world.field.mules, len(world.events.time)
    community_count, words, reach = len(communities.size), -(-max(mules, 1) // 64), max(1, schedule.max_reach)
    cet = protocol if isinstance(protocol, CET) else CET(put_back=False, alpha=inf)
    # A queue has at most the owner's copy and one for each mule of an event, unless copies of earlier contacts stay.
    room = protocol.K if cet.left_behind == "waits" else min(protocol.K, events * (mules + 1))
    carried = _max_carried(world, communities, cet) if cet.put_back else 0
    _check_memory(
        f"{sensors:,} sensors with queues of {room:,} and {mules:,} mules",
        sensors * room * (layout.COPY.itemsize + 8 * words)
        + mules * (sensors * layout.PAIR.itemsize + 8 * community_count),
        "reduce the numbers, or K",
    )
    occurrence = {name: getattr(schedule, name) for name in ("tick", "kind", "mule", "target")}
    return layout.FieldState(
        progress=_progress_at_start(),
        counts=np.zeros(len(layout.COUNTS), np.int64),
        rules=_rules(world, protocol, cet, radio, schedule),
        times=schedule.clock.times,
        occurrence=_rows(layout.OCCURRENCE, len(schedule.tick), **occurrence),
        event=_rows(
            layout.EVENT,
            events,
            created=schedule.created,
            expiry=schedule.clock.after(world.events.time + protocol.beta),
            origin=world.events.sensor,
            a1=world.events.a1,
            a2=world.events.a2,
        ),
        leg=_legs(schedule),
        leg_contact=_rows(
            layout.LEG_CONTACT,
            len(schedule.leg_contact),
            until=schedule.until[schedule.leg_contact],
            sensor=schedule.sensor[schedule.leg_contact],
        ),
        sensor=_sensors(world, radio, communities),
        link=_rows(
            layout.LINK,
            len(communities.neighbour),
            cost=world.field.event_bits * radio.e_elec + world.field.event_bits * radio.e_fs * communities.square,
            used_at=-1,
            sensor=communities.neighbour,
        ),
        community=_communities(communities),
        member=communities.member,
        tree_order=np.zeros(sensors, np.int32),
        mule=_rows(
            layout.MULE,
            mules,
            last_received_at=-_quiet(cet, schedule),
            a1=world.want[:, 0],
            a2=world.want[:, 1],
            leg=-1,
            last_sender=-1,
        ),
        pair=np.zeros((mules, sensors), layout.PAIR),
        in_reach=np.zeros((mules, reach), np.int32),
        communities=np.zeros((mules, reach), np.int32),
        reach_by_community=np.zeros((mules, community_count), np.int32),
        mules_in_contact=np.zeros((community_count, mules), np.int32),
        copy=np.empty((sensors, room), layout.COPY),
        sent_to=np.empty((sensors, room, words), np.uint64),
        stored=np.zeros((mules, carried), layout.STORED),
        received_by=np.zeros((events, words), np.uint64),
        put_back_to=np.zeros((events if cet.put_back else 0, -(-community_count // 64)), np.uint64),
        relay_pending=np.zeros(-(-sensors // 64), np.uint64),
        mule_mask=np.zeros(words, np.uint64),
        tried_mules=np.zeros(words, np.uint64),
        moved_mules=np.zeros(words, np.uint64),
        worklist=np.zeros(sensors + 1, np.int32),
        delivered=np.empty((_DELIVERED_ROWS + sensors + mules * reach, 4), np.int64),
        log=np.empty((_LOG_ROWS + log_room if log_room else 0, 4), np.int64),
    )


def build_epidemic_state(
    world: FieldWorld, protocol: Epidemic | SprayAndWait, radio: Radio, schedule: Schedule, *, log_room: int
) -> tuple[layout.FieldState, EpidemicState]:
    """Build the state for Epidemic or Spray-and-Wait. Raises InputError if it does not fit into memory."""
    sensors, mules, events = world.field.sensors, world.field.mules, len(world.events.time)
    nodes, words = sensors + mules, -(-max(events, 1) // 64)
    is_limited = isinstance(protocol, SprayAndWait)
    _check_memory(
        f"{protocol.name} with {nodes:,} nodes and {events:,} events",
        nodes * (16 * words + (6 if is_limited else 2) * events),
        "use a smaller field or a shorter duration",
    )
    state = build_field_state(
        world, DG(K=1, beta=protocol.beta), radio, find_communities(world), schedule, log_room=log_room
    )
    state.community["head_fixed"] = 1  # there are no heads
    room = np.full(nodes, protocol.K if isfinite(protocol.K) else 1 << 62, np.int64)
    room[sensors:] = 1 << 62
    counters = np.zeros(3, np.int64)
    counters[COPIES] = protocol.L if isinstance(protocol, SprayAndWait) else 0
    return state, EpidemicState(
        held=np.zeros((nodes, words), np.uint64),
        seen=np.zeros((nodes, words), np.uint64),
        hops=np.zeros((nodes, events), np.uint16),
        copies=np.zeros((nodes if is_limited else 0, events), np.int32),
        queue_length=np.zeros(nodes, np.int64),
        room=room,
        relay_pending=np.zeros(nodes, np.int32),
        received_at=np.full(nodes, -1, np.int64),
        arrived=np.zeros((nodes, 2), np.int64),
        counters=counters,
    )


def _check_memory(what: str, needed: int, hint: str) -> None:
    """Raise InputError if the arrays do not fit into the memory of a small machine."""
    if needed > _MAX_BYTES:
        raise InputError(f"{what} need {needed / 1e9:,.0f} GB of memory", hint=hint)


def _rows(record: np.dtype[np.void], count: int, **columns: npt.NDArray[np.generic] | float) -> Rows:
    rows = np.zeros(count, record)
    for name, values in columns.items():
        rows[name] = values
    return rows


def _progress_at_start() -> npt.NDArray[np.int64]:
    progress = np.zeros(len(layout.PROGRESS), np.int64)
    progress[layout.DEATH] = -1
    progress[layout.RETRY_TICK] = NEVER
    return progress


def _quiet(cet: CET, schedule: Schedule) -> int:
    return round(cet.quiet_s * schedule.clock.rate) if isfinite(schedule.clock.rate) else -1


def _rules(world: FieldWorld, protocol: CET | DG, cet: CET, radio: Radio, schedule: Schedule) -> Rows:
    bits, limited = world.field.event_bits, isfinite(schedule.clock.rate)
    return _rows(
        layout.RULES,
        1,
        instant=not limited,
        one_sent=limited and protocol.rate_per in ("node", "sender"),
        one_received=limited and protocol.rate_per in ("node", "receiver"),
        one_hop=limited and cet.hand_up == "hop",
        full_path=cet.hand_up == "way",
        keep_relayed=cet.left_behind == "waits",
        stores_all=cet.stores == "all",
        keep_copy=cet.gives == "copies",
        by_successes=isinstance(protocol, CET),
        put_back=cet.put_back,
        prune=cet.lost_root == "cut",
        resend=_RESEND[protocol.resend],
        room=protocol.K,
        quiet=_quiet(cet, schedule),
        gamma=cet.gamma,
        alpha=cet.alpha,
        theta=cet.theta,
        send=bits * radio.e_elec,
        loss=bits * radio.e_fs,
        receive=radio.receive(bits),
        unknown_square=(world.field.side / world.field.cells) ** 2,
        rate=schedule.clock.rate,
        seed=world.seed,
    )


def _legs(schedule: Schedule) -> Rows:
    legs = schedule.legs
    rows = np.zeros(len(legs.mule) + 1, layout.LEG)
    for name in ("start", "arrive", "x0", "y0", "x1", "y1"):
        rows[name][:-1] = getattr(legs, name)
    rows["first"] = schedule.leg_first
    return rows


def _sensors(world: FieldWorld, radio: Radio, communities: Communities) -> Rows:
    rows = np.zeros(world.field.sensors + 1, layout.SENSOR)
    rows["first"] = communities.start
    rows["x"][:-1], rows["y"][:-1], rows["community"][:-1] = world.x, world.y, communities.of
    rows["energy"] = radio.initial_j
    rows["next_expiry"] = NEVER
    for name in ("sent_at", "received_at", "retry_at", "last_upper", "parent", "child", "sibling"):
        rows[name] = -1
    return rows


def _communities(communities: Communities) -> Rows:
    rows = np.zeros(len(communities.size) + 1, layout.COMMUNITY)
    rows["first"] = communities.first
    rows["size"][:-1] = communities.size
    rows["head"][:-1] = communities.member[communities.first[:-1]]
    rows["head_fixed"][:-1] = np.diff(communities.first) == 1
    return rows


def _max_carried(world: FieldWorld, communities: Communities, cet: CET) -> int:
    """Maximum number of events of small communities that a mule can carry."""
    events = world.events
    small = communities.size[communities.of[events.sensor]] <= cet.gamma
    if cet.stores == "all":
        return int(small.sum())
    a1, a2 = events.a1[small], events.a2[small]
    return max((int(((a1 < one) & (a2 < two)).sum()) for one, two in world.want.tolist()), default=0)
