"""Held bindings: bindings that stay in force for a while after the binder has ended them.

A binding is held until the node of the source that replaces it has confirmed that it forwards events; and while the
node of its source does not respond, unless another source qualifies: what that node accepts meanwhile comes later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from roamcast.bind.lcesm.messages import Bound, Effect, StateChanged, SubscriptionState, Unbound
from roamcast.model import split_name

__all__ = ["HeldBindings"]


class HeldBindings:
    """The bindings that are held, by subscription and source. Not thread-safe."""

    def __init__(
        self, is_confirmed: Callable[[str], bool], is_silent: Callable[[str, str], bool] = lambda *_: False
    ) -> None:
        """`is_confirmed`: whether the events of a source come here, as far as it is known. `is_silent`: whether a
        subscription may only have lost a source because the node of that does not respond.
        """
        self._is_confirmed = is_confirmed
        self._is_silent = is_silent
        self._held: dict[str, dict[str, bool]] = {}  # whether it is because the node of the source is silent

    def __iter__(self) -> Iterator[str]:
        """The subscriptions that have any."""
        return iter(list(self._held))

    def sources_of(self, subscription: str) -> tuple[str, ...]:
        return tuple(self._held.get(subscription, ()))

    def is_cut_off(self, subscription: str) -> bool:
        """Whether its only sources are those of silent nodes."""
        return any(self._held.get(subscription, {}).values())

    def apply(
        self,
        effects: Iterable[Effect],
        at: int,
        may_hold: Callable[[str, str], bool],
        kept: Callable[[str], Iterable[str]] = lambda _: (),
    ) -> list[Effect]:
        """The effects without what is held, and with what need not be held any more.

        `may_hold`: whether the binding of a subscription without another source is held, because the node of its source
        is silent. `kept`: the sources that a subscription without a new one has, after a restart.
        """
        effects = list(effects)
        gained: dict[str, list[str]] = {}
        for effect in effects:
            if isinstance(effect, Bound):
                gained.setdefault(effect.subscription, []).append(effect.source)
        result: list[Effect] = []
        for effect in effects:
            match effect:
                case Bound(id, source) if source in self._held.get(id, ()):
                    self._forget(id, source)  # it goes on
                case Unbound(id, source) if not all(map(self._is_confirmed, gained.get(id) or kept(id))):
                    self._held.setdefault(id, {})[source] = False
                case Unbound(id, source) if id not in gained and may_hold(id, source):
                    self._held.setdefault(id, {})[source] = True
                case StateChanged(id, SubscriptionState.INACTIVE) if self._is_left_with_silent(id):
                    pass
                case StateChanged(id, SubscriptionState.STOP):
                    result += [*self.release(id, at), effect]
                case _:
                    result.append(effect)
        for id, sources in gained.items():
            if all(map(self._is_confirmed, sources)):
                result += self.release(id, at)
            elif id in self._held:
                self._held[id] = dict.fromkeys(self._held[id], False)  # it has another source now
        return result

    def release(self, subscription: str, at: int, node: str | None = None) -> list[Unbound]:
        """End the held bindings of a subscription; if a node is given, only those to sources of it."""
        held = [source for source in self.sources_of(subscription) if node in (None, split_name(source)[1])]
        for source in held:
            self._forget(subscription, source)
        return [Unbound(subscription, source, at) for source in held]

    def release_replaced(self, subscriptions: Iterable[str], at: int) -> list[Unbound]:
        """Their present sources are confirmed: end the bindings that were held for them."""
        return [unbound for id in subscriptions if not self.is_cut_off(id) for unbound in self.release(id, at)]

    def cut_off_by(self, node: str) -> list[str]:
        """The subscriptions that have only held sources of this node."""
        return [
            id
            for id, sources in self._held.items()
            if any(silent and split_name(source)[1] == node for source, silent in sources.items())
        ]

    def _is_left_with_silent(self, subscription: str) -> bool:
        """Note that a subscription has no source but held ones. Whether some of these are of silent nodes."""
        held = self._held.get(subscription, {})
        held.update((source, True) for source in held if self._is_silent(subscription, source))
        return self.is_cut_off(subscription)

    def _forget(self, subscription: str, source: str) -> None:
        held = self._held[subscription]
        del held[source]
        if not held:
            del self._held[subscription]
