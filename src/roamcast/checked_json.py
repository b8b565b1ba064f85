"""JSON files that name their format and carry a checksum."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import orjson

__all__ = ["pack", "unpack"]


def pack(format: str, content: Mapping[str, Any], *, indent: bool = False) -> bytes:
    """A JSON object with `content`, the keys of which are not `format` and `checksum`."""
    values = {"format": format, **content}
    option = orjson.OPT_INDENT_2 if indent else None
    return orjson.dumps({"checksum": _checksum(values), **values}, option=option)


def unpack(written: bytes, format: str) -> dict[str, Any]:
    """The content of what `pack` has made. Raises ValueError if it is anything else, or damaged."""
    values = orjson.loads(written)
    if not isinstance(values, dict):
        raise ValueError("not an object")
    if values.get("format") != format:
        raise ValueError(f"format {values.get('format')!r}, not {format!r}")
    if values.pop("checksum", None) != _checksum(values):
        raise ValueError("its checksum is wrong")
    del values["format"]
    return values


def _checksum(values: Mapping[str, Any]) -> str:
    return sha256(orjson.dumps(values)).hexdigest()
