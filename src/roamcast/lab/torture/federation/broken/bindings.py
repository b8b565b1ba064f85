"""Broken held bindings: a binding ends too early or never."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from roamcast.bind.lcesm.messages import Effect, Unbound
from roamcast.node.control.held_bindings import HeldBindings

__all__ = ["DropsSilentSources", "HoldsForever", "HoldsNothing"]


class HoldsNothing(HeldBindings):
    """A binding ends before the node of the source that replaces it has confirmed"""

    def apply(
        self,
        effects: Iterable[Effect],
        at: int,
        may_hold: Callable[[str, str], bool],
        kept: Callable[[str], Iterable[str]] = lambda _: (),
    ) -> list[Effect]:
        is_confirmed, self._is_confirmed = self._is_confirmed, lambda _: True
        try:
            return super().apply(effects, at, may_hold, kept)
        finally:
            self._is_confirmed = is_confirmed


class HoldsForever(HeldBindings):
    """A binding that was held for its replacement never ends"""

    def release_replaced(self, subscriptions: Iterable[str], at: int) -> list[Unbound]:
        return []


class DropsSilentSources(HeldBindings):
    """The binding to a source ends when its node is silent, although no other source qualifies"""

    def apply(
        self,
        effects: Iterable[Effect],
        at: int,
        may_hold: Callable[[str, str], bool],
        kept: Callable[[str], Iterable[str]] = lambda _: (),
    ) -> list[Effect]:
        return super().apply(effects, at, lambda *_: False, kept)
