"""Requests of gateways to the control writer: many sources at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from roamcast.bind.lcesm.messages import SourceRegistered, SourceRemoved
from roamcast.errors import ConflictError
from roamcast.node.callers import Caller
from roamcast.node.control.request_group import Outcome, RequestGroup
from roamcast.node.control.rights import checked
from roamcast.node.control.writer import ControlWriter
from roamcast.store.registry.port import check_id, entity_exists
from roamcast.store.registry.values import Entity, EntityAdded, EntityRemoved

__all__ = ["GatewayRequests"]


class GatewayRequests:
    """Adds and removes sources of gateways. Thread-safe; results are futures, as those of the control writer."""

    def __init__(self, control: ControlWriter) -> None:
        self._control = control

    def register_sources(
        self, gateway: Caller, sources: Sequence[Entity], *, all_or_none: bool = False
    ) -> Future[list[Outcome]]:
        """Register sources that belong to a gateway. For each whether it is new, or the error.

        One that the gateway has already stays as it is. With `all_or_none` the first error is raised, and none is
        registered. Raises AuthenticationError if the gateway has been removed.
        """
        return self._control.submit(
            checked(lambda group: _register(group, gateway.id, sources, all_or_none=all_or_none), gateway),
            entities=len(sources),
        )

    def remove_sources(self, gateway: Caller, ids: Sequence[str]) -> Future[list[str]]:
        """Remove those of these sources that belong to the gateway; returns their ids.

        Raises AuthenticationError if the gateway has been removed.
        """
        return self._control.submit(checked(lambda group: _remove(group, gateway.id, ids), gateway), entities=len(ids))


def _register(group: RequestGroup, gateway: str, sources: Sequence[Entity], *, all_or_none: bool) -> list[Outcome]:
    former_kinds = group.retired([source.id for source in sources])
    new: dict[str, Entity] = {}
    outcomes: list[Outcome] = []
    for source in sources:
        existing = new.get(source.id) or group.find(source.id)
        try:
            if existing is None:
                check_id(source.id, source.kind, former_kinds.get(source.id))
                new[source.id] = source
            elif existing.gateway != gateway:
                raise entity_exists(source.id)
            outcomes.append(existing is None)
        except ConflictError as error:
            if all_or_none:
                raise
            outcomes.append(error)
    group.flush_moves()
    group.update.changes += map(EntityAdded, new.values())
    group.apply_source_messages([SourceRegistered(one.id, one.attributes, one.position) for one in new.values()])
    group.entities |= new
    return outcomes


def _remove(group: RequestGroup, gateway: str, ids: Sequence[str]) -> list[str]:
    own = (source.id for id in ids if (source := group.find(id)) is not None and source.gateway == gateway)
    sources = list(dict.fromkeys(own))
    group.apply_source_messages([SourceRemoved(id) for id in sources])
    group.update.changes += map(EntityRemoved, sources)
    group.entities |= dict.fromkeys(sources)
    return sources
