"""The Python client of a node: `Client` blocks, `AsyncClient` awaits. Both have the same methods."""

from roamcast.client.async_client import AsyncClient
from roamcast.client.client import Client
from roamcast.client.values import (
    Binding,
    Letter,
    LetterTrace,
    MailboxLetters,
    PublishReceipt,
    SendReceipt,
    SourceResult,
    Subscription,
    SubscriptionResult,
)
from roamcast.errors import UncertainError

__all__ = [
    "AsyncClient", "Binding", "Client", "Letter", "LetterTrace", "MailboxLetters", "PublishReceipt", "SendReceipt",
    "SourceResult", "Subscription", "SubscriptionResult", "UncertainError",
]  # fmt: skip
