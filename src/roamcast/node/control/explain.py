"""Explain why an event matches a subscription or not: each check, and whether it holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from roamcast.bind.lcesm.views import SubscriptionStatus
from roamcast.deliver.outbox import PipelineStatus
from roamcast.lacl import Query, holds, plan_of
from roamcast.lacl.conditions import Attribute, variable_names
from roamcast.lacl.printing import condition_text, number_text, period_text, quoted, region_text
from roamcast.lacl.syntax import BoxRegion, Circle, Condition, RangLoc, Within, conjuncts
from roamcast.model import iso, split_name
from roamcast.places import Places
from roamcast.space import Space, contains
from roamcast.store.registry.values import Binding, Entity

__all__ = ["Check", "ExplainedEvent", "PipelineProgress", "explain", "verdict"]

_CONTEXT = "context"


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `holds` is None where this node cannot tell; `why` is always given."""

    name: str
    holds: bool | None
    why: str


@dataclass(frozen=True, slots=True)
class ExplainedEvent:
    """The event to explain. `source` is its source as registered now; None if it is not registered.

    Explanations repeat the point. They must not contain anything of `source` except whether conditions hold for it.
    """

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
    def source_name(self) -> str:
        return "an unnamed source" if self.name is None else self.name


@dataclass(frozen=True, slots=True)
class PipelineProgress:
    """How far the pipeline is: its status, whether it has everything in force, and this node's last offset."""

    sender: PipelineStatus | None
    is_informed: bool
    node: str
    last: int


def explain(
    query: Query,
    status: SubscriptionStatus,
    event: ExplainedEvent,
    *,
    subscriber: Entity | None,
    bindings: Iterable[Binding],
    progress: PipelineProgress,
    places: Places,
    space: Space,
) -> list[Check]:
    """Evaluate all checks by the current state. A past event may have met another state."""
    checks = [_active(status), *_registered(event)]
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
        why = f"events less than {period_text(query.every)} after the last letter are dropped"
        checks.append(Check("every", None, why))
    return [*checks, *_state(progress)]


def verdict(checks: Sequence[Check]) -> bool | None:
    """Whether the event matches; None if a check is undecided."""
    results = {check.holds for check in checks}
    return False if False in results else None if None in results else True


def _active(status: SubscriptionStatus) -> Check:
    runs = status.state.value == "active"
    why = status.why or f"since {iso(status.since)}"
    return Check("active", runs, why if runs else f"{status.state.value}: {why}")


def _region(
    query: Query, event: ExplainedEvent, subscriber: Entity | None, whose: str, places: Places, space: Space
) -> Iterator[Check]:
    region = query.location
    if region is None:
        return
    if event.x is None or event.y is None:
        yield Check("region", None, "the event has no point: give its x and y")
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
    # Round away from the radius: what is outside must not read as inside.
    shown = (math.floor if near else math.ceil)(10 * metres) / 10
    return Check(
        "region", near, f"{number_text(shown)} m from {what}{'' if near else f', not within {number_text(radius)} m'}"
    )


def _terms(required: Sequence[str], event: ExplainedEvent) -> Iterator[Check]:
    if required:
        missing = [quoted(term) for term in required if term not in event.terms]
        has = f"the event has {' and '.join(map(quoted, required))}"
        yield Check("terms", not missing, f"the event lacks {' and '.join(missing)}" if missing else has)


def _source(query: Query, event: ExplainedEvent) -> Iterator[Check]:
    condition = query.source_condition
    for part in () if condition is None else conjuncts(condition):
        if event.source is None and variable_names(part) != {"terms"}:
            yield _undecided("condition", part, event)
        else:
            kept = holds(part, event.attributes, terms=event.terms)
            why = f"{condition_text(part)} {'holds' if kept else 'does not hold'} for {event.source_name}"
            yield Check("condition", kept, why)


def _registered(event: ExplainedEvent) -> Iterator[Check]:
    """Sources of other nodes (source@home) are registered there."""
    if event.name is not None and event.source is None and split_name(event.name)[1] is None:
        yield Check("source", False, f"no source {event.name} is registered here")


def _undecided(name: str, condition: Condition, event: ExplainedEvent) -> Check:
    return Check(name, None, f"{condition_text(condition)}: the attributes of {event.source_name} are not known here")


def _bound(event: ExplainedEvent, bindings: Sequence[Binding]) -> Check:
    """Whether its source was bound at the time of the event."""
    candidates = [binding for binding in bindings if binding.source == event.name]
    for binding in candidates:
        if binding.bound_at <= event.time and (binding.unbound_at is None or event.time < binding.unbound_at):
            return Check("bound", True, f"{event.source_name} has been bound since {iso(binding.bound_at)}")
    if candidates:
        last = max(candidates, key=lambda binding: binding.bound_at)
        until = "" if last.unbound_at is None else f" to {iso(last.unbound_at)}"
        why = f"{event.source_name} was not bound at {iso(event.time)}; it was from {iso(last.bound_at)}{until}"
        return Check("bound", False, why)
    live = sorted(binding.source for binding in bindings if binding.unbound_at is None)
    return Check("bound", False, f"{event.source_name} is not bound; bound now: {', '.join(live) or 'none'}")


def _on(query: Query, event: ExplainedEvent) -> Iterator[Check]:
    if query.on is None:
        return
    if event.source is None and None in variable_names(query.on):
        yield _undecided("on", query.on, event)
        return
    context = event.attributes.get(_CONTEXT)
    name = context if isinstance(context, str) else None
    kept = holds(query.on, event.readings, context=name)
    yield Check("on", kept, f"{condition_text(query.on)} {'holds' if kept else 'does not hold'}: {_readings(event)}")


def _readings(event: ExplainedEvent) -> str:
    readings = ", ".join(f"{name} is {number_text(value)}" for name, value in sorted(event.readings.items()))
    return readings or "the event has no readings"


def _state(progress: PipelineProgress) -> Iterator[Check]:
    """Why there may be no letter yet. A pipeline that is behind will match events by the same state: in order."""
    sender = progress.sender
    if sender is None:
        yield Check("state", False, "no pipeline has reported to this node yet")
    elif not progress.is_informed:
        yield Check("state", False, f"pipeline {sender.pipeline} does not have this node's subscriptions yet")
    elif (read := sender.read_offsets.get(progress.node, 0)) < progress.last:
        yield Check("state", True, f"the pipeline has read {read} of {progress.last} records of this node so far")
