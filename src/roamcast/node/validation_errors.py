"""Validation errors of request bodies and messages, as one clear error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from inspect import isclass
from types import UnionType
from typing import Annotated, Any, Final, Protocol, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from roamcast.errors import InputError
from roamcast.validation import problem_text

__all__ = ["MalformedError", "first_problem", "input_error_of", "known_names", "list_length_error"]

_MOST_ERRORS = 1_000  # that are formatted
_PARTS: Final = ("query", "path", "header")  # of a request, to which FastAPI assigns a parameter


class MalformedError(InputError):
    """The body is not JSON."""


class _HasErrors(Protocol):
    """FastAPI's RequestValidationError."""

    def errors(self) -> Sequence[Any]: ...


def input_error_of(
    error: ValidationError | _HasErrors, name: str, most: int = 0, model: type[BaseModel] | None = None
) -> InputError:
    """The first validation error, with its path, such as `events[3].x`. `most` is the limit of a list.

    For an unknown field of `model`, or of a model inside it, the hint lists the known ones.
    """
    problems: Sequence[Any]
    if isinstance(error, ValidationError):
        if error.error_count() > _MOST_ERRORS:  # pydantic cannot format just one of them
            return InputError(f"{error.error_count()} errors", where=name or "body", hint="see /docs for the schema")
        problems = error.errors(include_url=False, include_input=False)
    else:
        problems = [{**problem, "loc": _without_part(problem["loc"])} for problem in error.errors()]
    first = problems[0]
    if most and first["type"] == "too_long" and not first["loc"]:
        return list_length_error(first["ctx"]["actual_length"], name, most)
    message = problem_text(first)
    if first["type"] == "json_invalid":
        return MalformedError(message, where="body", hint="send JSON in UTF-8")
    hint = first.get("ctx", {}).get("hint", "see /docs for the schema")
    if first["type"] == "extra_forbidden":
        message += f" {first['loc'][-1]!r}"
        hint = _field_hint(model, first["loc"]) or hint
    if len(problems) > 1:
        hint += f"; {len(problems) - 1} more error{'s' if len(problems) > 2 else ''}"
    return InputError(message, where=_path(name, first["loc"]), hint=hint)


def known_names(unknown: str, names: Iterable[str]) -> str:
    """A hint that lists the names that are known, and first the one that was probably meant."""
    known = sorted(names)
    listed = f"known: {', '.join(known) or 'none'}"
    close = get_close_matches(unknown, known, 1)
    return f"did you mean {close[0]!r}? {listed}" if close else listed


def first_problem(error: ValidationError) -> str:
    """The first validation error as one line, with its path."""
    first = input_error_of(error, "")
    return f"{first.where}: {first.message}"


def list_length_error(count: int, name: str, most: int) -> InputError:
    return InputError(f"{count} {name} in one request", where=name, hint=f"send 1 to {most} in a request")


def _field_hint(model: type[BaseModel] | None, steps: Sequence[str | int]) -> str | None:
    """What to send in place of the unknown field that `steps` lead to."""
    *parents, field = steps
    if parents and isinstance(parents[0], int):  # the element of a list of `model`
        parents = parents[1:]
    owner = _model_at(model, parents)
    if owner is None:
        return None
    former: str | None = getattr(owner, "former_fields", {}).get(field)
    return former or known_names(str(field), owner.model_fields)


def _model_at(kind: Any, steps: Sequence[str | int]) -> type[BaseModel] | None:
    """The model in a type to which the steps of a path lead."""
    if isclass(kind) and issubclass(kind, BaseModel):
        if not steps:
            return kind
        field = kind.model_fields.get(str(steps[0]))
        return None if field is None else _model_at(field.annotation, steps[1:])
    has_own_step = get_origin(kind) not in (Annotated, Union, UnionType)
    for part in get_args(kind):
        # The path has a step for the key or index of an element, and one for the tag of a tagged union.
        found = None if has_own_step else _model_at(part, steps)
        found = found or (_model_at(part, steps[1:]) if steps else None)
        if found is not None:
            return found
    return None


def _without_part(steps: Sequence[str | int]) -> Sequence[str | int]:
    return steps[1:] if steps and steps[0] in _PARTS else steps


def _path(name: str, steps: Sequence[str | int]) -> str:
    path = name
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path or "body"
