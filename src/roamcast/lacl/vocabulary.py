"""The words of the language, in one place for the parser, the printer and the errors."""

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
    "close_match",
    "is_bare",
    "is_bare_place",
    "one_of",
    "shown",
    "terminal_of",
]

CLAUSES: Final = ("Select", "Where", "On", "Every", "Life-control")
"""In the order in which they stand."""

KEYWORDS: Final[Mapping[str, str]] = {
    word.upper().replace("-", "_"): word
    for word in (*CLAUSES, "and", "or", "not", "in", "between", "has", "true", "false")
}
"""Terminal of the grammar → the word as it is printed. Keywords are reserved: as a bare name they need quotes."""

FUNCTIONS: Final = ("anyof", "nearof", "remoteof", "all")
"""What may stand after Select."""

REGIONS: Final[Mapping[str, str]] = {
    "rang:loc": "rang:loc(r)",
    "nearest": "nearest",
    "box": "box(min_x, min_y, max_x, max_y)",
    "circle": "circle(x, y, r)",
    "within": 'within("place")',
}
"""Name → how it is written."""

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
"""A bare word, as the grammar has it: two hyphens begin a comment."""

_WORD = re.compile(WORD)


def terminal_of(word: str) -> str:
    """The grammar's terminal for a word. Case does not matter, but only ASCII letters spell keywords."""
    plain = word.lower() if word.isascii() else word
    if plain in DISTANCE_UNITS or plain in TIME_UNITS:
        return "UNIT"
    terminal = plain.upper().replace("-", "_")
    return terminal if KEYWORDS.get(terminal, "").lower() == plain else "WORD"


def is_bare(text: str) -> bool:
    """Whether a text reads back as itself without quotes."""
    return _WORD.fullmatch(text) is not None and terminal_of(text) in ("WORD", "UNIT")


def is_bare_place(name: str) -> bool:
    """Whether the name of a place, which may be several words, reads back as itself without quotes."""
    return all(map(is_bare, name.split(" ")))


def close_match(word: str, options: Iterable[str]) -> str | None:
    """A hint that names the option which looks most like a word, if one does."""
    by_lower = {option.lower(): option for option in options}
    close = difflib.get_close_matches(word.lower()[:40], by_lower, n=1, cutoff=0.6)
    return f"did you mean {by_lower[close[0]]}?" if close else None


def shown(text: str) -> str:
    """In quotes for a message: short, and with nothing that a terminal would act on."""
    short = text if len(text) <= 40 else f"{text[:40]}…"
    return f"'{short}'" if short.isprintable() else ascii(short)


def one_of(options: Iterable[str]) -> str:
    """'a', or 'one of: a, b, c'."""
    words = list(options)
    return words[0] if len(words) == 1 else f"one of: {', '.join(words)}"
