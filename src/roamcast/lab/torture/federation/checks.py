"""Checks at quiet points, when all work is done and no fault is left."""

from __future__ import annotations

from collections.abc import Iterator
from math import dist
from typing import TYPE_CHECKING

import orjson

from roamcast.journal.wants import want_of_source
from roamcast.lab.torture.federation.rows import BindingRow, SubscriptionRow
from roamcast.model import global_name, split_name

if TYPE_CHECKING:
    from roamcast.lab.torture.federation.host import Host
    from roamcast.lab.torture.federation.ledger import LedgerSubscription
    from roamcast.lab.torture.federation.simulation import FederationSimulation

__all__ = ["check_quiet", "check_removed", "unfinished"]


def unfinished(simulation: FederationSimulation) -> Iterator[str]:
    """What is not yet as it should be when no fault is left."""
    for domain, host in simulation.hosts.items():
        if not host.up:
            yield f"never settles: {domain} is down"
            return
        if not host.pipeline.idle:
            yield f"never settles: the pipeline of {domain} has records to read"
        for office in host.disk.outbox.links_of(domain):
            if host.disk.outbox.waiting(office):
                yield f"never settles: nobody takes the events in {office}"
        for row in host.pipeline.state.subscriptions.values():
            if row.until is not None and row.drained_in is None:
                yield f"never settles: {row.id} was removed, and is still in the pipeline of {domain}"
        for stays in host.pipeline.state.stays.values():
            if any(stay.until is not None and stay.drained_in is None for stay in stays):
                yield f"never settles: the pipeline of {domain} keeps an earlier position of {stays[0].position.entity}"
    for client in (*simulation.sources, *simulation.subscribers):
        if not client.idle:
            yield f"never settles: {client.id} has unfinished requests"
    if simulation.network.late:
        yield "never settles: messages are in flight"
    for subscriber in simulation.subscribers:
        for one in subscriber.subscriptions:
            yield from _wrong_state(simulation, one, subscriber.position)
    for host in simulation.hosts.values():
        yield from _wrong_wants(simulation, host)
    yield from (f"lost: {owed}" for owed in simulation.ledger.owed)


def check_quiet(simulation: FederationSimulation) -> None:
    """Everything that had to come is there, and everything is as it should be."""
    ledger = simulation.ledger
    if not ledger.violations:
        for reason in unfinished(simulation):
            ledger.report(reason)
        for host in simulation.hosts.values():
            _check_losses(simulation, host)


def check_removed(simulation: FederationSimulation) -> None:
    """All subscriptions are gone: nothing is wanted any more."""
    for host in simulation.hosts.values():
        for link, peer, want in host.disk.registry.wants():
            simulation.ledger.report(f"still wanted: {peer} wants {want} of {host.domain} for {link}")
        state = host.pipeline.state
        rows: list[SubscriptionRow | BindingRow] = [*state.subscriptions.values(), *state.bindings.values()]
        for row in rows:
            if row.until is None and row.is_link:
                simulation.ledger.report(f"still wanted: the pipeline of {host.domain} has {row.id}")


def _wrong_wants(simulation: FederationSimulation, host: Host) -> Iterator[str]:
    """What a host wants of each peer is what its subscriptions need."""
    bound = {bound.source for bound in host.disk.registry.live_bindings()}
    regions = sum(subscription.in_pipeline for subscription in host.disk.registry.subscriptions())
    for peer in host.links:
        wants = {want for link, _, want in simulation.hosts[peer].disk.registry.wants() if link == host.link}
        needed = {want_of_source(id) for id, home in map(split_name, bound) if home == peer}
        sources = {want for want in wants if want.startswith('{"source":')}
        if sources != needed:
            yield f"wrong wants: {host.domain} wants {sources} of {peer}, needs {needed}"
        if len(wants - sources) > regions:
            yield f"wrong wants: {host.domain} wants {len(wants - sources)} regions of {peer}, needs {regions}"


def _check_losses(simulation: FederationSimulation, host: Host) -> None:
    """What a peer dropped is counted at both ends, as far as later events have come."""
    for peer in host.links:
        journals = {name: len(rows) for name, rows in host.disk.journals.items() if name.startswith(f"{peer}+")}
        numbers: set[int] = set()
        for name, count in journals.items():
            before = int(name.rpartition("+")[2])
            if not numbers.isdisjoint(range(before + 1, before + count + 1)):
                simulation.ledger.report(f"duplicated: {host.domain} has events of {peer} twice: {journals}")
            numbers.update(range(before + 1, before + count + 1))
        missing = set(range(1, max(numbers, default=0))) - numbers
        if host.lost.get(peer, 0) != len(missing):
            simulation.ledger.report(f"uncounted: {host.domain} lost {len(missing)} of {peer}, counted {host.lost}")
        if not missing <= simulation.ledger.dropped.get((peer, host.link), set()):
            simulation.ledger.report(f"lost: {host.domain} has not {missing} of {peer}, which were not dropped")


def _wrong_state(
    simulation: FederationSimulation, one: LedgerSubscription, position: tuple[float, float]
) -> Iterator[str]:
    """A subscription is active, and one of plan bind has the right source."""
    spec, host = one.spec, simulation.hosts[one.domain]
    right: set[str] = set()
    if spec.plan == "bind":
        distances = {
            source.id if source.domain == one.domain else global_name(source.id, source.domain): dist(
                source.position, position
            )
            for source in simulation.sources
            if source.registered and source.context == spec.context
        }
        nearest = min(distances.values(), default=0.0) if spec.radius is None else spec.radius
        right = {name for name, distance in distances.items() if distance <= nearest}
        bound = {each.source for each in host.disk.registry.live_bindings([one.id])}
        if not bound <= right or bool(bound) != bool(right):
            yield f"wrong source: {one.id} has {bound}, not {right}"
    if spec.is_moving:
        yield from (
            f"wrong wants: {one.id} is not in the regions of {peer}" for peer in _not_covered(simulation, one, position)
        )
    if (spec.plan == "match" or right) and host.active_sources(one.id) is None:
        yield f"never active: {one.id}, {spec.text}"


def _not_covered(
    simulation: FederationSimulation, one: LedgerSubscription, position: tuple[float, float]
) -> Iterator[str]:
    """The peers that have no want around a moving region."""
    host, (x, y), radius = simulation.hosts[one.domain], position, one.spec.radius or 0.0
    for peer in host.links:
        wants = (want.want for want in simulation.hosts[peer].disk.registry.wants() if want.link == host.link)
        boxes = [box for want in wants if (box := orjson.loads(want).get("box")) is not None]
        if not any(
            box[0] <= x - radius and box[1] <= y - radius and x + radius <= box[2] and y + radius <= box[3]
            for box in boxes
        ):
            yield peer
