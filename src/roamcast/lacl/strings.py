"""Quoted texts: what their escapes stand for."""

from __future__ import annotations

import re
from typing import Final

from lark import Token

from roamcast.lacl.errors import Span, SpanError

__all__ = ["text_of"]

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_MEANINGS: Final = {'"': '"', "'": "'", "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_HINT: Final = r"""the escapes are \" \' \\ \n \r \t \uXXXX and \UXXXXXXXX"""


def text_of(string: Token, offset: int = 0) -> str:
    """The text between the quotes. `offset` is how far after the token's place the quote stands.

    Raises SpanError for an unknown escape and for U+0000, which stores cannot keep.
    """
    start = (string.start_pos or 0) + offset + 1

    def meaning(found: re.Match[str]) -> str:
        escape = found[1]
        span = Span(start + found.start(), start + found.end())
        if len(escape) == 1:
            if escape not in _MEANINGS:
                raise SpanError(f"unknown escape {found[0]}", span, hint=_HINT)
            return _MEANINGS[escape]
        code = int(escape[1:], 16)
        if code == 0 or 0xD800 <= code < 0xE000 or code > 0x10FFFF:
            raise SpanError(f"{found[0]} is no character", span, hint=_HINT)
        return chr(code)

    return _ESCAPE.sub(meaning, string[1:-1])
