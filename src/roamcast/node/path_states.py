"""Whether events of other data folders reach a subscription: the part of its state that depends on peers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple

from roamcast.failures import Failure, wall_time
from roamcast.model import iso, split_name
from roamcast.node.control.wants import NodeWants

__all__ = ["PathState", "PathStates", "PathsNow"]


class PathState(NamedTuple):
    """Why an active subscription may miss events: `starting` until its peers have confirmed what it wants,
    `unreachable` if none of its sources can be reached, `partial` if some of its peers cannot. `since` may be unknown.
    """

    state: Literal["starting", "unreachable", "partial"]
    peers: tuple[str, ...]
    since: int | None
    why: str


class PathStates:
    """Judges active subscriptions. Any thread may call."""

    def __init__(
        self,
        wants: Callable[[], NodeWants],
        failures: Callable[[], dict[str, Failure]],
        stalled: Callable[[], dict[str, Failure]],
        silence: float,
        joining: Callable[[], Collection[str]] = tuple,
        now: Callable[[], int] = wall_time,
    ) -> None:
        """`failures` are the links that do not work, `stalled` the peers without a pipeline. After `silence` seconds
        the former count. `joining` are the peers of which nothing is wanted yet, after a start of this node.
        """
        self._wants = wants
        self._failures = failures
        self._stalled = stalled
        self._silence = round(silence * 1_000_000)
        self._joining = joining
        self._now = now

    def of(self, subscription: str, sources: Sequence[str] | None) -> PathState | None:
        """The state of an active subscription, which has these sources; None: of plan match. None if all is well."""
        return self.now().of(subscription, sources)

    def now(self) -> PathsNow:
        """The paths as they are now, to judge many subscriptions."""
        wants, joining = self._wants(), frozenset(self._joining())
        linked = joining.union(wants.peers)
        if not linked:
            return PathsNow(wants, linked, joining, {})
        now = self._now()
        down = {
            peer: (failure.since, f"{peer} has no running pipeline since {iso(failure.since)}")
            for peer, failure in self._stalled().items()
            if peer in linked
        } | {
            peer: (failure.since, f"{peer} does not respond since {iso(failure.since)}")
            for peer, failure in self._failures().items()
            if peer in linked and now - failure.since >= self._silence
        }
        return PathsNow(wants, linked, joining, down)


class PathsNow:
    """The peers with a data folder of their own, and from which of them no events come: since when, and why."""

    def __init__(
        self, wants: NodeWants, linked: frozenset[str], joining: frozenset[str], down: dict[str, tuple[int, str]]
    ) -> None:
        self._wants = wants
        self._linked = linked
        self._joining = joining
        self._down = down

    def of(self, subscription: str, sources: Sequence[str] | None) -> PathState | None:
        """See `PathStates.of`."""
        linked = self._linked
        homes = linked if sources is None else {home for _, home in map(split_name, sources) if home in linked}
        if not homes:
            return None
        if down := {peer: reason for peer, reason in self._down.items() if peer in homes}:
            is_cut_off = sources is not None and all(split_name(source)[1] in down for source in sources)
            peers, since = tuple(sorted(down)), min(since for since, _ in down.values())
            reasons = "; ".join(down[peer][1] for peer in peers)
            return PathState("unreachable" if is_cut_off else "partial", peers, since, reasons)
        if waiting := tuple(sorted(self._joining.union(self._wants.unconfirmed(subscription)).intersection(homes))):
            return PathState("starting", waiting, None, f"not confirmed yet by {', '.join(waiting)}")
        return None
