"""Path sets, and the contacts of mules with sensors and communities that change them."""

from __future__ import annotations

from roamcast.collect.simulation.kernels.layout import RESEND_CELL, RESEND_NEVER, FieldState, Int32s, u64
from roamcast.collect.simulation.kernels.queues import drop_relayed, forget_mule
from roamcast.compiled import inline_kernel, kernel

__all__ = ["change_leg", "insert", "lose_sensor", "meet_sensor", "remove", "wake_sensor"]


@inline_kernel
def wake_sensor(s: FieldState, sensor: int) -> None:
    """A sensor has a new event or a new path: all mules in contact may be served again."""
    c = s.sensor[sensor].community
    for at in range(s.community[c].mule_count):
        mule = s.mules_in_contact[c, at]
        s.pair[mule, sensor].done = 0
        if s.pair[mule, sensor].reach:
            s.mule[mule].may_collect = 1
    if s.community[c].mule_count > 0:
        s.relay_pending[sensor >> 6] |= u64(1) << u64(sensor & 63)


@kernel
def _wake_community(s: FieldState, mule: int, c: int) -> None:
    """The paths to a mule have changed: all members may relay again."""
    for at in range(s.community[c].first, s.community[c + 1].first):
        sensor = s.member[at]
        s.pair[mule, sensor].done = 0
        s.relay_pending[sensor >> 6] |= u64(1) << u64(sensor & 63)
    s.mule[mule].may_collect = 1


@kernel
def _build_path_set(s: FieldState, mule: int, c: int, tick: int) -> None:
    """Build the path set: layer 1 is the members in reach now or later on this leg, then breadth first."""
    for at in range(s.community[c].first, s.community[c + 1].first):
        s.pair[mule, s.member[at]].layer = 0
    filled = 0
    leg = s.mule[mule].leg
    for at in range(s.leg[leg].first, s.leg[leg + 1].first):
        sensor = s.leg_contact[at].sensor
        if s.leg_contact[at].until > tick and s.sensor[sensor].community == c and s.pair[mule, sensor].layer == 0:
            s.pair[mule, sensor].layer = 1
            s.worklist[filled] = sensor
            filled += 1
    visited = 0
    while visited < filled:
        sensor = s.worklist[visited]
        visited += 1
        for at in range(s.sensor[sensor].first, s.sensor[sensor + 1].first):
            other = s.link[at].sensor
            if s.pair[mule, other].layer == 0:
                s.pair[mule, other].layer = s.pair[mule, sensor].layer + 1
                s.worklist[filled] = other
                filled += 1
    _wake_community(s, mule, c)


@kernel
def _prune_path_set(s: FieldState, mule: int, c: int, sensor: int) -> None:
    """Remove the sensors whose only paths lead to this root. A path set rebuilt in this tick does not have it."""
    if s.pair[mule, sensor].layer != 1:
        return
    s.pair[mule, sensor].layer = 0
    depth, deeper = 2, 1
    while deeper > 0:
        deeper = 0
        for at in range(s.community[c].first, s.community[c + 1].first):
            member = s.member[at]
            layer = s.pair[mule, member].layer
            deeper += layer > depth
            if layer == depth:
                uppers = 0
                for k in range(s.sensor[member].first, s.sensor[member + 1].first):
                    uppers += s.pair[mule, s.link[k].sensor].layer == depth - 1
                if uppers == 0:
                    s.pair[mule, member].layer = 0
        depth += 1
    _wake_community(s, mule, c)


@inline_kernel
def change_leg(s: FieldState, mule: int, leg: int, tick: int) -> None:
    """A mule starts a leg: rebuild the path sets of all communities in contact."""
    s.mule[mule].leg = leg
    for at in range(s.mule[mule].communities):
        _build_path_set(s, mule, s.communities[mule, at], tick)


@inline_kernel
def meet_sensor(s: FieldState, mule: int, sensor: int, tick: int) -> None:
    """A contact with a sensor begins, and possibly one with its community."""
    c, mule_row, resend = s.sensor[sensor].community, s.mule[mule], s.rules[0].resend
    s.pair[mule, sensor].reach = 1
    insert(s.in_reach, mule, mule_row.in_reach, sensor)
    mule_row.in_reach += 1
    mule_row.may_collect, mule_row.put_back_done = 1, 0
    if resend == RESEND_CELL:
        forget_mule(s, sensor, mule)
    s.reach_by_community[mule, c] += 1
    if s.reach_by_community[mule, c] > 1:
        wake_sensor(s, sensor)
        return
    s.mules_in_contact[c, s.community[c].mule_count] = mule
    s.community[c].mule_count += 1
    insert(s.communities, mule, mule_row.communities, c)
    mule_row.communities += 1
    if resend != RESEND_NEVER and resend != RESEND_CELL:
        for at in range(s.community[c].first, s.community[c + 1].first):
            forget_mule(s, s.member[at], mule)
    _build_path_set(s, mule, c, tick)


@inline_kernel
def lose_sensor(s: FieldState, mule: int, sensor: int, tick: int) -> None:
    """A contact with a sensor ends, and possibly the one with its community."""
    c, mule_row = s.sensor[sensor].community, s.mule[mule]
    s.pair[mule, sensor].reach = 0
    remove(s.in_reach, mule, mule_row.in_reach, sensor)
    mule_row.in_reach -= 1
    s.reach_by_community[mule, c] -= 1
    if s.reach_by_community[mule, c] > 0:
        if s.rules[0].prune:
            _prune_path_set(s, mule, c, sensor)
        else:
            _build_path_set(s, mule, c, tick)
        return
    remove(s.mules_in_contact, c, s.community[c].mule_count, mule)
    s.community[c].mule_count -= 1
    remove(s.communities, mule, mule_row.communities, c)
    mule_row.communities -= 1
    for at in range(s.community[c].first, s.community[c + 1].first):
        member = s.member[at]
        s.pair[mule, member].layer = 0
        if not s.rules[0].keep_relayed:
            drop_relayed(s, member, mule)
        if s.community[c].mule_count == 0:
            s.sensor[member].retry_at = -1
            s.relay_pending[member >> 6] &= ~(u64(1) << u64(member & 63))


@inline_kernel
def insert(lists: Int32s, row: int, count: int, value: int) -> None:
    """Insert into an ascending list."""
    at = count
    while at > 0 and lists[row, at - 1] > value:
        lists[row, at] = lists[row, at - 1]
        at -= 1
    lists[row, at] = value


@inline_kernel
def remove(lists: Int32s, row: int, count: int, value: int) -> None:
    """Remove from a list and keep its order."""
    at = 0
    while lists[row, at] != value:
        at += 1
    for k in range(at, count - 1):
        lists[row, k] = lists[row, k + 1]
