"""Validation errors in plain words, and the patterns of texts that can be invalid."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["DOMAIN", "ID", "NO_CONTROLS", "ORIGIN", "STORE", "TOKEN", "URL", "problem_text"]

DOMAIN: Final = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}(\.[A-Za-z0-9][A-Za-z0-9_-]{0,63})?$"
ID: Final = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"
NO_CONTROLS: Final = r"^[^\x00-\x1f]*$"
ORIGIN: Final = r"^(\*|https?://[^\s/?#@,]+)$"
STORE: Final = r"^postgresql://"
TOKEN: Final = r"^[A-Za-z0-9_-]{43,200}$"  # noqa: S105  (a pattern)
URL: Final = r"^https?://[^\s]+$"

_PATTERNS: Final = {
    DOMAIN: "must be 'domain' or 'system.domain', each of 1 to 64 letters, digits, '_' and '-'",
    ID: "must be 1 to 128 letters, digits, '.', '_', ':' and '-', and begin with a letter or digit",
    NO_CONTROLS: "must not contain line breaks or other control characters",
    ORIGIN: "must be an origin, such as https://app.example:8443, without a path; or *",
    STORE: "must begin with postgresql://",
    TOKEN: "must be 43 to 200 letters, digits, '_' and '-': 256 random bits or more",
    URL: "must be a URL that begins with http:// or https://",
}
_MESSAGES: Final = {
    "extra_forbidden": "unknown field",
    "finite_number": "must be a finite number",
    "missing": "missing field",
}
_TYPES: Final = {
    "bool": "true or false", "dict": "an object", "float": "a number", "int": "an integer", "list": "a list",
    "model": "an object", "path": "a path", "string": "a string", "tuple": "a list",
}  # fmt: skip
_REWORDED: Final = (
    (r"^Value error, ", ""),
    (r"(?s)^.* is not one of (.*)\.$", r"must be one of \1"),
    (r"^\w+ should ", "must "),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
    (" after validation", ""),
)


def problem_text(problem: Mapping[str, Any]) -> str:
    """What is wrong, from one of pydantic's error details. Texts of our own validators are unchanged."""
    kind, pattern = problem["type"], problem.get("ctx", {}).get("pattern")
    if text := _MESSAGES.get(kind) or _PATTERNS.get(pattern):
        return text
    if match := re.fullmatch(rf"({'|'.join(_TYPES)})_(\w+_)?(type|parsing|parsing_size|from_float)", kind):
        return f"must be {_TYPES[match[1]]}"
    text = problem["msg"]
    for old, new in _REWORDED:
        text = re.sub(old, new, text)
    return text[:1].lower() + text[1:]
