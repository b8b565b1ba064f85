"""All examples, in an order in which they work."""

from __future__ import annotations

from typing import Final

from roamcast.node.http.examples.entities import ENTITIES, LAST
from roamcast.node.http.examples.events import EVENTS
from roamcast.node.http.examples.letters import LETTERS
from roamcast.node.http.examples.nodes import NODES
from roamcast.node.http.examples.subscriptions import SUBSCRIPTIONS
from roamcast.node.http.examples.values import Examples

__all__ = ["EXAMPLES"]

EXAMPLES: Final[Examples] = {**ENTITIES, **SUBSCRIPTIONS, **EVENTS, **LETTERS, **NODES, **LAST}
