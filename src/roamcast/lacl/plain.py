"""Reads the plainest texts without the parser: all events in a box, with some terms, or both.

The parser is the reference; this gives the same, twenty times faster, or None. It is for programs that add very many
subscriptions.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Final, NamedTuple

from roamcast.lacl.vocabulary import terminal_for
from roamcast.model import Box

__all__ = ["PlainQuery", "read_plain"]

_LONGEST: Final = 1_000  # characters
_NUMBER: Final = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_TERM: Final = r'[A-Za-z](?:[\w.]|-(?!-))*|"[^"\\\x00-\x1f\ud800-\udfff]+"'
_BOX: Final = rf"&location\s+(?i:in)\s+(?i:box)\s*\(\s*({_NUMBER}(?:\s*,\s*{_NUMBER}){{3}})\s*\)"
_TERMS: Final = rf"&terms\s+(?i:has)\s*\(\s*((?:{_TERM})(?:\s*,\s*(?:{_TERM}))*)\s*\)"
_QUERY: Final = re.compile(
    rf"\s*(?i:select\s+all)\s*\(\s*\)\s*(?i:where)\s+(?:{_BOX}(?:\s+(?i:and)\s+{_TERMS})?|{_TERMS})\s*", re.ASCII
)
_EACH_TERM: Final = re.compile(_TERM, re.ASCII)


class PlainQuery(NamedTuple):
    """All events in `box`, or anywhere, that have these terms, each of which is named once."""

    box: Box | None
    terms: tuple[str, ...]


def read_plain(text: str) -> PlainQuery | None:
    """None if the text is not plain, or may not be valid. The coordinates have not been checked."""
    match = _QUERY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    corners, *lists = match.groups()
    box = None if corners is None else Box(*map(float, corners.split(",")))
    if box is not None and not all(map(isfinite, box)):
        return None
    terms: list[str] = []
    for term in _EACH_TERM.findall(lists[0] or lists[1] or ""):
        if term[0] == '"':
            terms.append(term[1:-1])
        elif terminal_for(term) == "WORD":
            terms.append(term)
        else:
            return None
    return PlainQuery(box, tuple(terms)) if len(set(terms)) == len(terms) else None
