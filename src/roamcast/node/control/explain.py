"""Why an event does or would match a subscription, or not: each thing that is asked for, and whether it holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from roamcast.bind.lcesm.views import SubscriptionStatus
from roamcast.deliver.outbox import PipelineStatus
from roamcast.lacl import Query, holds, plan_of
from roamcast.lacl.conditions import Attribute
from roamcast.lacl.printing import condition_text, number_text, period_text, quoted, region_text
from roamcast.lacl.syntax import BoxRegion, Circle, RangLoc, Within, conjuncts
from roamcast.model import iso
from roamcast.places import Places
from roamcast.space import Space, contains
from roamcast.store.registry.values import Binding, Entity

__all__ = ["Check", "Happened", "Progress", "explain", "verdict"]

_CONTEXT = "context"


@dataclass(frozen=True, slots=True)
class Check:
    """`holds` is None where it cannot be said here; `why` says why in any case."""

    name: str
    holds: bool | None
    why: str


@dataclass(frozen=True, slots=True)
class Happened:
    """An event, as far as it is asked for. `source` is as it is registered now; None for one that is not."""

    name: str | None
    source: Entity | None
    x: float | None
    y: float | None
    time: int
    terms: frozenset[str]
    readings: Mapping[str, float]

    @property
    def attributes(self) -> Mapping[str, Attribute]:
        return {} if self.source is None else self.source.attributes

    @property
    def of(self) -> str:
        return "a source that is not named" if self.name is None else self.name


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the pipeline is: its card, whether it was told of everything, and the last record of this node."""

    sender: PipelineStatus | None
    told: bool
    node: str
    last: int


def explain(
    query: Query,
    status: SubscriptionStatus,
    event: Happened,
    *,
    subscriber: Entity | None,
    bindings: Iterable[Binding],
    progress: Progress,
    places: Places,
    space: Space,
) -> list[Check]:
    """What is asked for, by what is so now; an event of the past may have met something else."""
    checks = [_active(status)]
    if plan_of(query) == "match":
        checks += _region(query, event, subscriber, status.subscriber, places, space)
        checks += _terms(query.terms, event)
        checks += _source(query, event)
    else:
        bound = _bound(event, list(bindings))
        checks.append(bound)
        if not bound.holds:
            checks += _source(query, event)
    checks += _on(query, event)
    if query.every is not None:
        why = f"an event less than {period_text(query.every)} from the last one that was notified is left out"
        checks.append(Check("every", None, why))
    return [*checks, _state(progress)]


def verdict(checks: Sequence[Check]) -> bool | None:
    """Whether the event matches; None where that cannot be said."""
    found = {check.holds for check in checks}
    return False if False in found else None if None in found else True


def _active(status: SubscriptionStatus) -> Check:
    runs = status.state.value == "active"
    why = status.why or f"since {iso(status.since)}"
    return Check("active", runs, why if runs else f"{status.state.value}: {why}")


def _region(
    query: Query, event: Happened, subscriber: Entity | None, whose: str, places: Places, space: Space
) -> Iterator[Check]:
    region = query.location
    if region is None:
        return
    if event.x is None or event.y is None:
        yield Check("region", None, "the event has no point, and its source no position")
        return
    x, y = event.x, event.y
    match region:
        case RangLoc(radius):
            at = None if subscriber is None else subscriber.position
            if at is None:
                yield Check("region", False, f"the position of {whose} is not known")
            else:
                yield _near(
                    space, (at.x, at.y), (x, y), radius, f"{whose}, at ({number_text(at.x)}, {number_text(at.y)})"
                )
        case Circle(centre_x, centre_y, radius):
            there = f"({number_text(centre_x)}, {number_text(centre_y)})"
            yield _near(space, (centre_x, centre_y), (x, y), radius, there)
        case BoxRegion(box):
            yield _inside(bool(contains(*box, x, y)), (x, y), region_text(region))
        case Within(place) if place in places.names:
            yield _inside(bool(places.contains(place, x, y)), (x, y), quoted(place))
        case Within(place):
            yield Check("region", False, f"no place named {place!r} is known here")


def _inside(inside: bool, point: tuple[float, float], region: str) -> Check:
    return Check("region", inside, f"({', '.join(map(number_text, point))}) is {'in' if inside else 'not in'} {region}")


def _near(space: Space, centre: tuple[float, float], point: tuple[float, float], radius: float, what: str) -> Check:
    metres = float(space.distance(*centre, *point))
    near = metres <= radius
    # Rounded away from the radius: what is beyond must not read as if it were within.
    told = (math.floor if near else math.ceil)(10 * metres) / 10
    return Check(
        "region", near, f"{number_text(told)} m from {what}{'' if near else f', not within {number_text(radius)} m'}"
    )


def _terms(wanted: Sequence[str], event: Happened) -> Iterator[Check]:
    if wanted:
        missing = [quoted(term) for term in wanted if term not in event.terms]
        has = f"it has {' and '.join(map(quoted, wanted))}"
        yield Check("terms", not missing, f"it lacks {' and '.join(missing)}" if missing else has)


def _source(query: Query, event: Happened) -> Iterator[Check]:
    condition = query.source_expression
    if condition is None:
        return
    unregistered = event.name is not None and event.source is None
    for part in conjuncts(condition):
        kept = holds(part, event.attributes, terms=event.terms)
        why = f"{condition_text(part)} {'holds' if kept else 'does not hold'} for {event.of}"
        yield Check("condition", kept, f"{why}, which is not registered here" if unregistered else why)


def _bound(event: Happened, bindings: Sequence[Binding]) -> Check:
    """Whether a binding of its source was valid when it happened."""
    own = [binding for binding in bindings if binding.source == event.name]
    for binding in own:
        if binding.bound_at <= event.time and (binding.unbound_at is None or event.time < binding.unbound_at):
            return Check("bound", True, f"{event.of} is bound since {iso(binding.bound_at)}")
    if own:
        last = max(own, key=lambda binding: binding.bound_at)
        until = "" if last.unbound_at is None else f" to {iso(last.unbound_at)}"
        why = f"{event.of} was not bound at {iso(event.time)}; it was from {iso(last.bound_at)}{until}"
        return Check("bound", False, why)
    live = sorted(binding.source for binding in bindings if binding.unbound_at is None)
    return Check("bound", False, f"{event.of} is not bound; {', '.join(live) or 'no source'} is")


def _on(query: Query, event: Happened) -> Iterator[Check]:
    if query.on is None:
        return
    context = event.attributes.get(_CONTEXT)
    name = context if isinstance(context, str) else None
    kept = holds(query.on, event.readings, context=name)
    yield Check("on", kept, f"{condition_text(query.on)} {'holds' if kept else 'does not hold'}: {_readings(event)}")


def _readings(event: Happened) -> str:
    given = ", ".join(f"{name} is {number_text(value)}" for name, value in sorted(event.readings.items()))
    return given or "it has no readings"


def _state(progress: Progress) -> Check:
    """Whether the pipeline has all that this node has journalled."""
    sender = progress.sender
    if sender is None:
        return Check("state", False, "no pipeline has shown itself here")
    if not progress.told:
        return Check("state", False, f"pipeline {sender.pipeline} has not been told of what is in force here")
    read = sender.read_offsets.get(progress.node)
    if read is None:
        return Check("state", None, "the pipeline does not say how far it has read the journal of this node")
    if read < progress.last:
        why = f"the pipeline has read {read} of {progress.last} records of this node: the last ones do not count yet"
        return Check("state", None, why)
    return Check("state", True, f"the pipeline has read all {read} records of this node, up to batch {sender.batch}")
