"""Attributes of entities as texts: NAME=VALUE."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Final

from roamcast.errors import InputError

__all__ = ["AttributeValue", "attribute_lines", "parse_attributes"]

AttributeValue = str | float | bool

_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")  # as in JSON
_NOT_NUMBERS: Final = ("nan", "inf", "infinity")
_MAX_INTEGER: Final = 2**53 - 1  # larger integers lose digits in JSON


def parse_attributes(texts: Iterable[str]) -> dict[str, AttributeValue]:
    """Parse NAME=VALUE texts. Raises InputError that names the option."""
    return dict(map(_parse_attribute, texts))


def attribute_lines(attributes: dict[str, AttributeValue]) -> list[str]:
    return [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in attributes.items()]


def _parse_attribute(text: str) -> tuple[str, AttributeValue]:
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise InputError(f"{text!r} is not NAME=VALUE", where="--attribute", hint="for example context=noise")
    if value in ("true", "false"):
        return name, value == "true"
    if value.startswith('"'):
        return name, _parse_quoted(name, value)
    if value.lower().lstrip("+-") in _NOT_NUMBERS or _NUMBER.fullmatch(value):
        return name, _parse_number(name, value)
    return name, value


def _parse_number(name: str, value: str) -> float:
    number = float(value)
    is_integer = value.lstrip("-").isdecimal()
    if not math.isfinite(number) or (is_integer and abs(number) > _MAX_INTEGER):
        hint = f"to store it as a string, quote it: --attribute '{name}=\"{value}\"'"
        raise InputError(f"{value} cannot be stored exactly", where=f"--attribute {name}", hint=hint)
    return int(value) if is_integer else number


def _parse_quoted(name: str, value: str) -> str:
    try:
        return str(json.loads(value))
    except ValueError as error:
        hint = 'close the quote, and write \\" for a quote inside, as in JSON'
        raise InputError(f"{value} is not a quoted string", where=f"--attribute {name}", hint=hint) from error
