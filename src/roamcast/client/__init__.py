"""The Python client of a node: `Client` blocks, `AsyncClient` awaits; both have the same methods."""

from roamcast.client.async_client import AsyncClient
from roamcast.client.client import Client
from roamcast.client.values import Accepted, Binding, Letter, Sent, Subscription, Trace
from roamcast.errors import UncertainError

__all__ = ["Accepted", "AsyncClient", "Binding", "Client", "Letter", "Sent", "Subscription", "Trace", "UncertainError"]
