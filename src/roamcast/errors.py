"""The one error tree. Every error carries a message for a person and a hint what to do next."""

from __future__ import annotations

__all__ = [
    "AuthenticationError",
    "CapacityError",
    "ConflictError",
    "CorruptionError",
    "ElsewhereError",
    "InputError",
    "NotFoundError",
    "PermissionDeniedError",
    "RoamcastError",
    "StorageError",
    "UnavailableError",
]


class RoamcastError(Exception):
    """Base of all errors a user may see.

    `code` is stable and machine-readable; `where` names the field, row, file or record concerned.
    """

    code = "error"

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text} ({self.hint})" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.where, self.hint))


def _rebuild(kind: type[RoamcastError], message: str, where: str | None, hint: str | None) -> RoamcastError:
    """Errors cross process borders (Spark workers), keyword arguments and all."""
    return kind(message, where=where, hint=hint)


class InputError(RoamcastError):
    """What the user gave is wrong; nothing was applied."""

    code = "bad_input"


class NotFoundError(RoamcastError):
    code = "not_found"


class ConflictError(RoamcastError):
    """It contradicts what is already there (a taken id, a second pipeline, state and checkpoint that disagree)."""

    code = "conflict"


class ElsewhereError(ConflictError):
    """The subscriber's mailbox is not at this office. `office` and `epoch` are the latest known here."""

    code = "elsewhere"
    office: str | None = None
    epoch: int = 0


class AuthenticationError(RoamcastError):
    """No token, or one that nobody has."""

    code = "unauthenticated"


class PermissionDeniedError(RoamcastError):
    """A valid token, but of somebody else."""

    code = "forbidden"


class CapacityError(RoamcastError):
    """A stated limit is reached; the sender keeps what it has and may try again later."""

    code = "capacity"


class StorageError(RoamcastError):
    """The disk refused: full, read-only or failing. Nothing was acknowledged."""

    code = "storage"


class CorruptionError(RoamcastError):
    """A file of ours does not match its checksum or its format."""

    code = "corrupt"


class UnavailableError(RoamcastError):
    """Something needed (a node, Java, a peer) does not answer."""

    code = "unavailable"
