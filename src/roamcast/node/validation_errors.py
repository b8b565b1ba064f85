"""Validation errors of request bodies and messages, as one clear error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pydantic import ValidationError

from roamcast.errors import InputError
from roamcast.validation import problem_text

__all__ = ["MalformedError", "first_problem", "input_error_of", "list_length_error"]

_MOST_ERRORS = 1_000  # that are formatted


class MalformedError(InputError):
    """The body is not JSON."""


class _HasErrors(Protocol):
    """FastAPI's RequestValidationError."""

    def errors(self) -> Sequence[Any]: ...


def input_error_of(error: ValidationError | _HasErrors, name: str, most: int = 0) -> InputError:
    """The first validation error, with its path, such as `events[3].x`. `most` is the limit of a list."""
    problems: Sequence[Any]
    if isinstance(error, ValidationError):
        if error.error_count() > _MOST_ERRORS:  # pydantic cannot format just one of them
            return InputError(f"{error.error_count()} errors", where=name or "body", hint="see /docs for the schema")
        problems = error.errors(include_url=False, include_input=False)
    else:
        problems = error.errors()
    first = problems[0]
    if most and first["type"] == "too_long" and not first["loc"]:
        return list_length_error(first["ctx"]["actual_length"], name, most)
    message = problem_text(first)
    if first["type"] == "json_invalid":
        return MalformedError(message, where="body", hint="send JSON in UTF-8")
    hint = first.get("ctx", {}).get("hint", "see /docs for the schema")
    if len(problems) > 1:
        hint += f"; {len(problems) - 1} more error{'s' if len(problems) > 2 else ''}"
    return InputError(message, where=_path(name, first["loc"]), hint=hint)


def first_problem(error: ValidationError) -> str:
    """The first validation error as one line, with its path."""
    first = input_error_of(error, "")
    return f"{first.where}: {first.message}"


def list_length_error(count: int, name: str, most: int) -> InputError:
    return InputError(f"{count} {name} in one request", where=name, hint=f"send 1 to {most} in a request")


def _path(name: str, steps: Sequence[str | int]) -> str:
    path = name
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path or "body"
