"""Keywords, units and limits of the language, shared by the parser, the printer and the error messages."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

__all__ = [
    "CLAUSES",
    "DISTANCE_UNITS",
    "FUNCTIONS",
    "KEYWORDS",
    "MAX_BYTES",
    "MAX_NESTING",
    "MAX_PERIOD",
    "REGIONS",
    "TIME_UNITS",
    "WORD",
    "display",
    "is_bare",
    "is_bare_place",
    "list_options",
    "suggest",
    "terminal_for",
]

CLAUSES: Final = ("Select", "Where", "On", "Every", "Life-control")
"""In the required order."""

KEYWORDS: Final[Mapping[str, str]] = {
    word.upper().replace("-", "_"): word
    for word in (*CLAUSES, "and", "or", "not", "in", "between", "has", "true", "false")
}
"""Terminal of the grammar → canonical spelling. Keywords are reserved; as names they need quotes."""

FUNCTIONS: Final = ("anyof", "nearof", "remoteof", "all")
"""Functions that can follow Select."""

REGIONS: Final[Mapping[str, str]] = {
    "rang:loc": "rang:loc(r)",
    "nearest": "nearest",
    "box": "box(min_x, min_y, max_x, max_y)",
    "circle": "circle(x, y, r)",
    "within": 'within("place")',
}
"""Name → usage."""

DISTANCE_UNITS: Final[Mapping[str, float]] = {"m": 1.0, "km": 1_000.0}
"""In metres."""

TIME_UNITS: Final[Mapping[str, int]] = {"ms": 1_000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000}
"""In microseconds."""

MAX_BYTES: Final = 64 * 1024
"""Longest text, in bytes of UTF-8."""

MAX_NESTING: Final = 100
"""How many parentheses and `not`s may be open at once."""

MAX_PERIOD: Final = 100 * 365 * 24 * TIME_UNITS["h"]
"""Longest period of `Every`, in microseconds."""

WORD: Final = r"[^\W\d_](?:[\w.]|-(?!-))*"
"""The grammar's rule for a bare word. Two hyphens start a comment."""

_WORD = re.compile(WORD)


def terminal_for(word: str) -> str:
    """Return the grammar's terminal for a word. Keywords are ASCII and case-insensitive."""
    plain = word.lower() if word.isascii() else word
    if plain in DISTANCE_UNITS or plain in TIME_UNITS:
        return "UNIT"
    terminal = plain.upper().replace("-", "_")
    return terminal if KEYWORDS.get(terminal, "").lower() == plain else "WORD"


def is_bare(text: str) -> bool:
    """Whether a string can be written without quotes."""
    return _WORD.fullmatch(text) is not None and terminal_for(text) in ("WORD", "UNIT")


def is_bare_place(name: str) -> bool:
    """Whether the name of a place, which may have several words, can be written without quotes."""
    return all(map(is_bare, name.split(" ")))


def suggest(word: str, options: Iterable[str]) -> str | None:
    """Return a hint with the option that is most similar to a word, or None."""
    by_lower = {option.lower(): option for option in options}
    close = difflib.get_close_matches(word.lower()[:40], by_lower, n=1, cutoff=0.6)
    return f"did you mean {by_lower[close[0]]}?" if close else None


def display(text: str) -> str:
    """Quote a string for a message: shortened, and without control characters."""
    short = text if len(text) <= 40 else f"{text[:40]}…"
    return f"'{short}'" if short.isprintable() else ascii(short)


def list_options(options: Iterable[str]) -> str:
    """Join options for a message: 'a', or 'one of: a, b, c'."""
    words = list(options)
    return words[0] if len(words) == 1 else f"one of: {', '.join(words)}"
