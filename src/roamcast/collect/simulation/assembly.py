"""A world and a protocol as the arrays that the kernels live on."""

from __future__ import annotations

from math import inf, isfinite

import numpy as np
import numpy.typing as npt

from roamcast.collect.simulation.community import Communities
from roamcast.collect.simulation.energy import Radio
from roamcast.collect.simulation.field import World
from roamcast.collect.simulation.kernels import layout
from roamcast.collect.simulation.kernels.layout import Count, Resend, Rows
from roamcast.collect.simulation.protocols import CET, DG
from roamcast.collect.simulation.schedule import NEVER, Schedule
from roamcast.errors import InputError

__all__ = ["assemble", "check_memory"]

_DELIVERED_ROOM = 1 << 15
_LOG_ROOM = 1 << 17
_MOST_BYTES = 2 << 30
_RESEND = {
    "subscriber": Resend.NEVER,
    "once": Resend.NEVER,
    "contact": Resend.CONTACT,
    "missing": Resend.MISSING,
    "cell": Resend.CELL,
}


def assemble(
    world: World, protocol: CET | DG, radio: Radio, communities: Communities, plan: Schedule, *, log: int
) -> layout.World:
    """`log`: how many transfers there are in a round at most, if they are to be logged; else 0.

    Raises InputError for a field so large that it does not fit into memory.
    """
    sensors, mules, events = world.field.sensors, world.field.mules, len(world.births.time)
    groups, words, near = len(communities.size), -(-max(mules, 1) // 64), max(1, plan.reach)
    cet = protocol if isinstance(protocol, CET) else CET(put_back=False, alpha=inf)
    # Of an event a queue has its owner's copy and one for each mule; more where copies of earlier contacts wait.
    room = protocol.K if cet.left_behind == "waits" else min(protocol.K, events * (mules + 1))
    carried = _most_carried(world, communities, cet) if cet.put_back else 0
    check_memory(
        f"{sensors:,} sensors with queues of {room:,} and {mules:,} mules",
        sensors * room * (layout.COPY.itemsize + 8 * words) + mules * (sensors * layout.PAIR.itemsize + 8 * groups),
        "take fewer of them, or a smaller K",
    )
    return layout.World(
        clock=np.array([0, 0, 0, 0, 0, 0, -1, NEVER], np.int64),
        counts=np.zeros(len(Count), np.int64),
        rules=_rules(world, protocol, cet, radio, plan),
        times=plan.clock.times,
        happening=_rows(
            layout.HAPPENING, len(plan.tick), tick=plan.tick, kind=plan.kind, mule=plan.mule, what=plan.what
        ),
        event=_rows(
            layout.EVENT,
            events,
            born=plan.born,
            expiry=plan.clock.after(world.births.time + protocol.beta),
            origin=world.births.sensor,
            a1=world.births.a1,
            a2=world.births.a2,
        ),
        path=_paths(plan),
        visit=_rows(
            layout.VISIT,
            len(plan.leg_contact),
            until=plan.until[plan.leg_contact],
            sensor=plan.sensor[plan.leg_contact],
        ),
        sensor=_sensors(world, radio, communities),
        link=_rows(
            layout.LINK,
            len(communities.neighbour),
            cost=world.field.event_bits * radio.e_elec + world.field.event_bits * radio.e_fs * communities.square,
            used_at=-1,
            sensor=communities.neighbour,
        ),
        group=_groups(communities),
        member=communities.member,
        order=np.zeros(sensors, np.int32),
        mule=_rows(
            layout.MULE,
            mules,
            heard_at=-_quiet(cet, plan),
            a1=world.want[:, 0],
            a2=world.want[:, 1],
            leg=-1,
            last_sender=-1,
        ),
        pair=np.zeros((mules, sensors), layout.PAIR),
        near=np.zeros((mules, near), np.int32),
        touched=np.zeros((mules, near), np.int32),
        touching=np.zeros((mules, groups), np.int32),
        contact=np.zeros((groups, mules), np.int32),
        copy=np.empty((sensors, room), layout.COPY),
        sent=np.empty((sensors, room, words), np.uint64),
        stored=np.zeros((mules, carried), layout.STORED),
        known=np.zeros((events, words), np.uint64),
        kept=np.zeros((events if cet.put_back else 0, -(-groups // 64)), np.uint64),
        restless=np.zeros(-(-sensors // 64), np.uint64),
        mask=np.zeros(words, np.uint64),
        tried=np.zeros(words, np.uint64),
        moved=np.zeros(words, np.uint64),
        line=np.zeros(sensors + 1, np.int32),
        delivered=np.empty((_DELIVERED_ROOM + sensors + mules * near, 4), np.int64),
        log=np.empty((_LOG_ROOM + log if log else 0, 4), np.int64),
    )


def check_memory(what: str, needed: int, hint: str) -> None:
    """Raises InputError for more than fits into the memory of a small machine."""
    if needed > _MOST_BYTES:
        raise InputError(f"{what} take {needed / 1e9:,.0f} GB of memory", hint=hint)


def _rows(record: np.dtype[np.void], count: int, **columns: npt.NDArray[np.generic] | float) -> Rows:
    rows = np.zeros(count, record)
    for name, values in columns.items():
        rows[name] = values
    return rows


def _quiet(cet: CET, plan: Schedule) -> int:
    return round(cet.quiet_s * plan.clock.rate) if isfinite(plan.clock.rate) else -1


def _rules(world: World, protocol: CET | DG, cet: CET, radio: Radio, plan: Schedule) -> Rows:
    bits, limited = world.field.event_bits, isfinite(plan.clock.rate)
    return _rows(
        layout.RULES,
        1,
        instant=not limited,
        one_sent=limited and protocol.rate_per in ("node", "sender"),
        one_got=limited and protocol.rate_per in ("node", "receiver"),
        one_hop=limited and cet.hand_up == "hop",
        way=cet.hand_up == "way",
        waits=cet.left_behind == "waits",
        stores_all=cet.stores == "all",
        copies=cet.gives == "copies",
        by_successes=isinstance(protocol, CET),
        put_back=cet.put_back,
        cut=cet.lost_root == "cut",
        resend=_RESEND[protocol.resend],
        room=protocol.K,
        quiet=_quiet(cet, plan),
        gamma=cet.gamma,
        alpha=cet.alpha,
        theta=cet.theta,
        send=bits * radio.e_elec,
        loss=bits * radio.e_fs,
        receive=radio.receive(bits),
        unknown=(world.field.side / world.field.cells) ** 2,
        rate=plan.clock.rate,
        seed=world.seed,
    )


def _paths(plan: Schedule) -> Rows:
    legs = plan.legs
    rows = np.zeros(len(legs.mule) + 1, layout.PATH)
    for name in ("start", "arrive", "x0", "y0", "x1", "y1"):
        rows[name][:-1] = getattr(legs, name)
    rows["first"] = plan.leg_first
    return rows


def _sensors(world: World, radio: Radio, communities: Communities) -> Rows:
    rows = np.zeros(world.field.sensors + 1, layout.SENSOR)
    rows["first"] = communities.start
    rows["x"][:-1], rows["y"][:-1], rows["group"][:-1] = world.x, world.y, communities.of
    rows["energy"] = radio.initial_j
    rows["next_expiry"] = NEVER
    for name in ("sent_at", "got_at", "alarm", "upper", "parent", "child", "sibling"):
        rows[name] = -1
    return rows


def _groups(communities: Communities) -> Rows:
    rows = np.zeros(len(communities.size) + 1, layout.GROUP)
    rows["first"] = communities.first
    rows["size"][:-1] = communities.size
    rows["head"][:-1] = communities.member[communities.first[:-1]]
    rows["for_good"][:-1] = np.diff(communities.first) == 1
    return rows


def _most_carried(world: World, communities: Communities, cet: CET) -> int:
    """How many events of small communities a mule can have at most."""
    births = world.births
    small = communities.size[communities.of[births.sensor]] <= cet.gamma
    if cet.stores == "all":
        return int(small.sum())
    a1, a2 = births.a1[small], births.a2[small]
    return max((int(((a1 < one) & (a2 < two)).sum()) for one, two in world.want.tolist()), default=0)
