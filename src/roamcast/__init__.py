"""Publish/subscribe that follows you.

This module is the public API: clients, the values they return, errors, and LACL (`roamcast.lacl`). Everything else is
private unless docs/api-policy.md says otherwise. Names are imported when they are first used, so that `import roamcast`
is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roamcast import lacl
    from roamcast.client import (
        AsyncClient,
        Binding,
        Client,
        Letter,
        LetterTrace,
        MailboxLetters,
        PublishReceipt,
        SendReceipt,
        SourceResult,
        Subscription,
        SubscriptionResult,
    )
    from roamcast.errors import (
        AuthenticationError,
        CapacityError,
        ConflictError,
        CorruptionError,
        ElsewhereError,
        InputError,
        MissingExtraError,
        NotFoundError,
        PermissionDeniedError,
        RoamcastError,
        StorageError,
        UnavailableError,
        UncertainError,
    )
    from roamcast.lacl.errors import LaclError

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AuthenticationError",
    "Binding",
    "CapacityError",
    "Client",
    "ConflictError",
    "CorruptionError",
    "ElsewhereError",
    "InputError",
    "LaclError",
    "Letter",
    "LetterTrace",
    "MailboxLetters",
    "MissingExtraError",
    "NotFoundError",
    "PermissionDeniedError",
    "PublishReceipt",
    "RoamcastError",
    "SendReceipt",
    "SourceResult",
    "StorageError",
    "Subscription",
    "SubscriptionResult",
    "UnavailableError",
    "UncertainError",
    "__version__",
    "lacl",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'roamcast' has no attribute {name!r}")
    from importlib import import_module

    if name == "lacl":
        return import_module("roamcast.lacl")
    module = "lacl" if name == "LaclError" else "errors" if name.endswith("Error") else "client"
    value = globals()[name] = getattr(import_module(f"roamcast.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
