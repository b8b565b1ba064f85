"""Attributes as options."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable

import typer

from roamcast.errors import InputError

__all__ = ["AttributeOption", "attribute_lines", "attributes_of"]

AttributeOption = typer.Option(
    "--attribute",
    metavar="NAME=VALUE",
    help="An attribute: a number, true, false or a text, which may be quoted; may be repeated.",
)

Value = str | float | bool

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")  # as in JSON
_NO_NUMBERS = ("nan", "inf", "infinity")
_LARGEST = 2**53 - 1  # beyond, whole numbers lose digits on their way


def attributes_of(texts: Iterable[str]) -> dict[str, Value]:
    """Raises InputError naming the option."""
    return dict(map(_attribute, texts))


def attribute_lines(attributes: dict[str, Value]) -> list[str]:
    return [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in attributes.items()]


def _attribute(text: str) -> tuple[str, Value]:
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise InputError(f"{text!r} is not NAME=VALUE", where="--attribute", hint="such as context=noise")
    if value in ("true", "false"):
        return name, value == "true"
    if value.startswith('"'):
        return name, _unquoted(name, value)
    if value.lower().lstrip("+-") in _NO_NUMBERS or _NUMBER.fullmatch(value):
        return name, _number(name, value)
    return name, value


def _number(name: str, value: str) -> float:
    number = float(value)
    if not math.isfinite(number) or (number.is_integer() and abs(number) > _LARGEST and value.lstrip("-").isdecimal()):
        hint = f"to have it as a text quote it: --attribute '{name}=\"{value}\"'"
        raise InputError(f"{value} is not a number that can be kept as it is", where=f"--attribute {name}", hint=hint)
    return int(value) if value.lstrip("-").isdecimal() else number


def _unquoted(name: str, value: str) -> str:
    try:
        return str(json.loads(value))
    except ValueError as error:
        hint = 'end it with a quote, and write \\" for one inside, as in JSON'
        raise InputError(f"{value} is no quoted text", where=f"--attribute {name}", hint=hint) from error
