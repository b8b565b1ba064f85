"""Which sources of a node are to send: those that somebody wants. Sans-IO."""

from __future__ import annotations

from collections.abc import Iterable

from roamcast.bind.discovery.backbone import Backbone
from roamcast.bind.discovery.messages import News, Sources
from roamcast.bind.lcesm.messages import Effect, Unwanted, Wanted
from roamcast.model import local_name

__all__ = ["Demand"]


class Demand:
    """A source is wanted while a binding names it, here or at another node, or a subscription of the match plan that
    runs could admit its events. Who is new sends until it is told otherwise.
    """

    def __init__(self, backbone: Backbone, sources: Sources) -> None:
        self._backbone = backbone
        self._sources = sources
        self._bound: set[str] = set()
        self._asleep: set[str] = set()

    def is_wanted(self, source: str) -> bool:
        return source not in self._asleep

    def begin_again(self) -> None:
        """No binding names any source here, until it is said again."""
        self._bound.clear()

    def hear(self, effects: Iterable[Effect]) -> list[str]:
        """What the binder did; the sources of this node that it concerns."""
        concerned = []
        for effect in effects:
            if isinstance(effect, Wanted | Unwanted) and local_name(effect.source)[1] is None:
                (self._bound.add if isinstance(effect, Wanted) else self._bound.discard)(effect.source)
                concerned.append(effect.source)
        return concerned

    def review(self, sources: Iterable[str]) -> list[str]:
        """Look again whether these are wanted; those of which it has changed."""
        changed = []
        for id in dict.fromkeys(sources):
            source = self._sources.get(id)
            sleeps = source is not None and not self._wants(source)
            if sleeps != (id in self._asleep):
                (self._asleep.add if sleeps else self._asleep.discard)(id)
                changed.append(id)
        return changed

    def _wants(self, source: News) -> bool:
        return (
            source.source in self._bound
            or any(request.admits(source.attributes or {}) for request in self._backbone.matching)
            or self._backbone.announcer.is_wanted(source)
        )
