"""The error tree. Every error carries a message for people, a stable code and a hint about what to do next."""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "AuthenticationError", "CapacityError", "ConflictError", "CorruptionError", "ElsewhereError", "ExitCode",
    "InputError", "MissingExtraError", "NotFoundError", "PermissionDeniedError", "RoamcastError", "StorageError",
    "UnavailableError", "UncertainError",
]  # fmt: skip


class ExitCode(IntEnum):
    """Exit codes of the `roamcast` command. docs/cli.md lists them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    CONFLICT = 5
    UNAVAILABLE = 6
    LIMIT = 7
    STORAGE = 8
    MISSING_EXTRA = 9
    INTERRUPTED = 130


class RoamcastError(Exception):
    """Base class of all errors that users can see.

    `code` is stable and machine-readable. `where` names the field, row, file or record concerned, `hint` says what to
    do. `exit_code` is the exit code of a command that ends with this error.
    """

    code = "error"
    exit_code = ExitCode.FAILED

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
    """Unpickle an error: they travel from Spark workers to the driver."""
    return kind(message, where=where, hint=hint)


class InputError(RoamcastError):
    """The input is invalid. Nothing was applied."""

    code = "bad_input"
    exit_code = ExitCode.USAGE


class NotFoundError(RoamcastError):
    """There is no such entity, subscription or peer."""

    code = "not_found"
    exit_code = ExitCode.NOT_FOUND


class ConflictError(RoamcastError):
    """The request conflicts with the current state: an id is in use, a second pipeline runs, a checkpoint differs."""

    code = "conflict"
    exit_code = ExitCode.CONFLICT


class ElsewhereError(ConflictError):
    """The subscriber's mailbox is at another office.

    `office` is the last known one, None if unknown here; `epoch` counts the mailbox's migrations.
    """

    code = "elsewhere"
    office: str | None = None
    epoch: int = 0


class AuthenticationError(RoamcastError):
    """The token is missing or unknown."""

    code = "unauthenticated"
    exit_code = ExitCode.REFUSED


class PermissionDeniedError(RoamcastError):
    """The token is valid but belongs to an entity that may not do this."""

    code = "forbidden"
    exit_code = ExitCode.REFUSED


class CapacityError(RoamcastError):
    """A limit is reached. Keep the data and try again later."""

    code = "capacity"
    exit_code = ExitCode.LIMIT


class StorageError(RoamcastError):
    """The disk is full, read-only or failing. Nothing was acknowledged."""

    code = "storage"
    exit_code = ExitCode.STORAGE


class CorruptionError(RoamcastError):
    """A data file does not match its checksum or format."""

    code = "corrupt"
    exit_code = ExitCode.STORAGE


class UnavailableError(RoamcastError):
    """A node, a peer, Java or another service does not respond."""

    code = "unavailable"
    exit_code = ExitCode.UNAVAILABLE


class UncertainError(UnavailableError):
    """No response said whether the letter was accepted. Sending it again with the same `number` delivers it once."""

    code = "uncertain"
    number: int = 0


class MissingExtraError(RoamcastError):
    """A command needs packages of an optional extra that is not installed."""

    code = "missing_extra"
    exit_code = ExitCode.MISSING_EXTRA
