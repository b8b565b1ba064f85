"""Decides which sources of this node should send events. Sans-IO."""

from __future__ import annotations

from collections.abc import Iterable

from roamcast.bind.discovery.backbone import Backbone
from roamcast.bind.discovery.messages import LocalSources, SourceAnnouncement
from roamcast.bind.lcesm.messages import Effect, SourceDemanded, SourceIdle
from roamcast.model import split_name

__all__ = ["SourceDemand"]


class SourceDemand:
    """The demanded and idle sources of this node.

    A source is demanded while a binding here or at a peer names it, or while a running subscription of plan match
    may admit its events, judging by its attributes and position. New sources count as demanded until they are reviewed.
    """

    def __init__(self, backbone: Backbone, sources: LocalSources) -> None:
        self._backbone = backbone
        self._sources = sources
        self._bound: set[str] = set()
        self._idle: set[str] = set()

    def is_demanded(self, source: str) -> bool:
        return source not in self._idle

    def reset_bindings(self) -> None:
        """Forget all local bindings. They are to be reported again with `apply`."""
        self._bound.clear()

    def apply(self, effects: Iterable[Effect]) -> list[str]:
        """Take over the binder's effects. Returns the local sources to review."""
        concerned = []
        for effect in effects:
            if isinstance(effect, SourceDemanded | SourceIdle) and split_name(effect.source)[1] is None:
                (self._bound.add if isinstance(effect, SourceDemanded) else self._bound.discard)(effect.source)
                concerned.append(effect.source)
        return concerned

    def take_concerned(self) -> set[str]:
        """The sources to review because requests here or at peers have changed since the last call."""
        concerned, self._backbone.announcer.demand_changed = self._backbone.announcer.demand_changed, set()
        changed = self._backbone.match_requests.changed
        concerned |= self._backbone.announcer.concerned_by(changed)
        changed.clear()
        return concerned

    def review(self, sources: Iterable[str]) -> list[str]:
        """Decide again for these sources. Returns those that changed between demanded and idle."""
        changed = []
        for id in dict.fromkeys(sources):
            source = self._sources.get(id)
            is_idle = source is not None and not self._needs(source)
            if is_idle != (id in self._idle):
                (self._idle.add if is_idle else self._idle.discard)(id)
                changed.append(id)
        return changed

    def _needs(self, source: SourceAnnouncement) -> bool:
        return (
            source.source in self._bound
            or self._backbone.match_requests.admits(source)
            or self._backbone.announcer.is_demanded(source)
        )
