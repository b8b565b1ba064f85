"""Validation errors in plain words."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError

from roamcast.validation import DOMAIN, ID, NO_CONTROLS, STORE, URL, problem_text


class Model(BaseModel):
    """A model with one required field."""

    x: int


def refuse(value: object) -> object:
    raise ValueError("a text of our own")


CASES: list[tuple[Any, object, str]] = [
    (int, "one", "must be an integer"),
    (int, 1.5, "must be an integer"),
    (int, "1" * 5000, "must be an integer"),
    (float, "one", "must be a number"),
    (float | None, [], "must be a number"),
    (bool, "maybe", "must be true or false"),
    (str, 1, "must be a string"),
    (tuple[float, float], 1, "must be a list"),
    (tuple[float, float], [1, "two"], "must be a number"),
    (tuple[float, float], [1, 2, 3], "must have at most 2 items, not 3"),
    (dict[str, int], 1, "must be an object"),
    (Model, 1, "must be an object"),
    (Model, {}, "missing field"),
    (Literal["a", "b"], "c", "must be 'a' or 'b'"),
    (Annotated[int, Field(ge=1)], 0, "must be at least 1"),
    (Annotated[int, Field(le=9)], 10, "must be at most 9"),
    (Annotated[float, Field(gt=0)], 0, "must be greater than 0"),
    (Annotated[float, Field(allow_inf_nan=False)], "nan", "must be a finite number"),
    (Annotated[str, Field(max_length=2)], "abc", "must have at most 2 characters"),
    (Annotated[str, Field(pattern="^a")], "b", "must match pattern '^a'"),
    (Annotated[str, BeforeValidator(refuse)], "b", "a text of our own"),
]


@pytest.mark.parametrize(("kind", "value", "text"), CASES)
def test_text_is_short_and_plain(kind: Any, value: object, text: str) -> None:
    """It continues the name of the field."""
    with pytest.raises(ValidationError) as error:
        TypeAdapter(kind).validate_python(value)
    assert problem_text(error.value.errors()[0]) == text


@pytest.mark.parametrize("pattern", [DOMAIN, ID, NO_CONTROLS, STORE, URL])
def test_patterns_are_described(pattern: str) -> None:
    """Nobody has to read a regular expression."""
    with pytest.raises(ValidationError) as error:
        TypeAdapter(Annotated[str, Field(pattern=pattern)]).validate_python("\n")
    text = problem_text(error.value.errors()[0])
    assert text.startswith("must ")
    assert pattern not in text
