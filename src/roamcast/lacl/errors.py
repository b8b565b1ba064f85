"""Errors in a query: message, line, column, what was expected, and an excerpt with carets."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Self

from roamcast.errors import InputError
from roamcast.lacl.vocabulary import list_options

__all__ = ["LaclError", "Span", "SpanError"]

_NEWLINE = re.compile(r"\r\n?|\n")
_WINDOW: Final = 100  # characters of a line that an excerpt shows


class Span(NamedTuple):
    """The range of characters of a part of a query: `start` inclusive, `end` exclusive."""

    start: int
    end: int


class SpanError(Exception):
    """An error at a span. It becomes a LaclError where the text is known."""

    def __init__(
        self, message: str, span: Span | None, *, expected: Sequence[str] = (), hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.expected = tuple(expected)
        self.hint = hint


class LaclError(InputError):
    """The text is not a query, or the query fails a check.

    `line` and `column` count characters from 1; they are None for a query that was not parsed from text. `expected`
    lists in words what is possible at this point. `excerpt` is the line with carets below the error.
    """

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        line: int | None = None,
        column: int | None = None,
        expected: tuple[str, ...] = (),
        excerpt: str = "",
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.line = line
        self.column = column
        self.expected = expected
        self.excerpt = excerpt

    @classmethod
    def at(cls, text: str, error: SpanError) -> Self:
        """Locate a SpanError in its text."""
        message = f"{error.message}, expected {list_options(error.expected)}" if error.expected else error.message
        if error.span is None or error.span.start > len(text):
            return cls(message, hint=error.hint, expected=error.expected)
        line_starts = [newline.end() for newline in _NEWLINE.finditer(text, 0, error.span.start)]
        line, start = len(line_starts) + 1, line_starts[-1] if line_starts else 0
        column = error.span.start - start + 1
        return cls(
            message,
            where=f"line {line}, column {column}",
            hint=error.hint,
            line=line,
            column=column,
            expected=error.expected,
            excerpt=_excerpt(_NEWLINE.split(text[start:], maxsplit=1)[0], column - 1, error.span),
        )

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.excerpt}" if self.excerpt else super().__str__()

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, vars(self)))


def _rebuild(kind: Callable[[str], LaclError], message: str, state: dict[str, object]) -> LaclError:
    error = kind(message)
    vars(error).update(state)
    return error


def _excerpt(line: str, at: int, span: Span) -> str:
    """The line, or the part of it around the error, with carets below. Widths are those of a terminal."""
    if not line.strip():
        return ""
    first = max(0, min(at - _WINDOW // 2, len(line) - _WINDOW))
    visible = line[first : first + _WINDOW]
    head = "…" if first else ""
    tail = "…" if first + _WINDOW < len(line) else ""
    before, marked = visible[: at - first], visible[at - first :][: span.end - span.start]
    indent = " " * (4 + len(head) + _width(before))
    return f"    {head}{_printable(visible)}{tail}\n{indent}{'^' * max(1, _width(marked))}"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " if c.isspace() else "·" for c in text)


def _width(text: str) -> int:
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
