"""The wants of this node and of its peers, as the control writer sees them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from roamcast.journal.records import BINDING, SUBSCRIPTION, Record
from roamcast.node.control.binder_adapter import BinderAdapter
from roamcast.node.control.draining import Draining
from roamcast.node.control.held_bindings import HeldBindings
from roamcast.node.control.links import Links
from roamcast.node.control.wants import NodeWants
from roamcast.space import Space
from roamcast.store.registry.port import RegistryStore

__all__ = ["ControlParts", "PeerWants"]


@dataclass(frozen=True, slots=True)
class ControlParts:
    """The classes that the links of a node are built from. Fault simulations replace some of them."""

    wants: type[NodeWants] = NodeWants
    links: type[Links] = Links
    held: type[HeldBindings] = HeldBindings
    draining: type[Draining] = Draining


_PAGE = 10_000  # subscriptions read at a time


class PeerWants:
    """What this node wants, and what others want of it. Belongs to the control writer's thread, except for reading
    `own`.
    """

    def __init__(
        self,
        registry: RegistryStore,
        link_with: Callable[[str], str],
        session: int,
        space: Space,
        max_wants: int,
        shares_folder: Callable[[str], bool] = lambda _: True,
        linked_peers: Callable[[], Collection[str]] = tuple,
        journalled: Callable[[], int | None] = lambda: None,
        parts: ControlParts | None = None,
    ) -> None:
        """`link_with` has the name of the path from a node to this data folder. Each peer may want `max_wants`."""
        self._registry = registry
        self._max_wants = max_wants
        self._links: Links | None = None
        self._latest: dict[tuple[str, str], tuple[int, int]] = {}  # versions of peers, see `Links`
        self._changed: set[str] = set()
        self._parts = parts or ControlParts()
        self.own = self._parts.wants(link_with, session, space, shares_folder, linked_peers)
        self.draining = self._parts.draining(linked_peers, journalled)
        self.notify: Callable[[Iterable[str]], None] = lambda _: None
        """Called with the peers from which this node wants something else, once that is journalled."""

    def join(self, peer: str, adapter: BinderAdapter) -> None:
        """A peer has a data folder of its own. For the first, all subscriptions are read, which may take a while."""
        if not self.own.peers:
            self.own.clear()
            after = ""
            while page := self._registry.subscriptions(after=after, limit=_PAGE):
                after = page[-1].id
                for subscription in page:
                    if subscription.in_pipeline:
                        id, subscriber = subscription.id, subscription.subscriber
                        record = Record(SUBSCRIPTION, subscriber, id=id, body=subscription.body)
                        self.own.note([record, *adapter.position_records(id, subscriber)])
            bindings = self._registry.live_bindings()
            self.own.note(Record(BINDING, bound.source, id=bound.subscription) for bound in bindings)
        self.own.add_peer(peer)

    def note(self, records: Collection[Record]) -> None:
        """Follow control records that are stored."""
        self.draining.note(records)
        if self.own.peers:
            self._changed |= self.own.note(records)

    def publish(self) -> None:
        """Everything is journalled: notify."""
        changed, self._changed = self._changed, set()
        if changed:
            self.notify(changed)

    def links(self) -> Links:
        """What others want, as stored."""
        if self._links is None:
            self._links = self._parts.links(self._registry, self._max_wants, self._latest)
        return self._links

    def discard_links(self) -> None:
        """They may differ from what is stored."""
        self._links = None
