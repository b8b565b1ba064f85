"""What is wrong with a query, and where: line, column, what was expected, and a caret below the place."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Self

from roamcast.errors import InputError
from roamcast.lacl.vocabulary import one_of

__all__ = ["LaclError", "Span", "SpanError"]

_NEWLINE = re.compile(r"\r\n?|\n")
_WINDOW: Final = 100  # characters of a line that an excerpt shows


class Span(NamedTuple):
    """Where a part of a query stands in its text: characters from `start` up to, not including, `end`."""

    start: int
    end: int


class SpanError(Exception):
    """What is wrong with a span. It becomes a LaclError where the text is known."""

    def __init__(
        self, message: str, span: Span | None, *, expected: Sequence[str] = (), hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.expected = tuple(expected)
        self.hint = hint


class LaclError(InputError):
    """A text that is no query, or a query that makes no sense.

    `line` and `column` count from 1, in characters; they are None for a query that was not made from text.
    `expected` says in words what could stand there; `excerpt` is the line concerned and carets below it.
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
    def at(cls, text: str, fault: SpanError) -> Self:
        """A fault, shown in the text."""
        message = f"{fault.message}, expected {one_of(fault.expected)}" if fault.expected else fault.message
        if fault.span is None or fault.span.start > len(text):
            return cls(message, hint=fault.hint, expected=fault.expected)
        before = [found.end() for found in _NEWLINE.finditer(text, 0, fault.span.start)]
        line, start = len(before) + 1, before[-1] if before else 0
        column = fault.span.start - start + 1
        return cls(
            message,
            where=f"line {line}, column {column}",
            hint=fault.hint,
            line=line,
            column=column,
            expected=fault.expected,
            excerpt=_excerpt(_NEWLINE.split(text[start:], maxsplit=1)[0], column - 1, fault.span),
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
    """The line, or the part of it around the place, and carets below; both as wide as a terminal shows them."""
    if not line.strip():
        return ""
    first = max(0, min(at - _WINDOW // 2, len(line) - _WINDOW))
    shown = line[first : first + _WINDOW]
    head = "…" if first else ""
    tail = "…" if first + _WINDOW < len(line) else ""
    before, marked = shown[: at - first], shown[at - first :][: span.end - span.start]
    indent = " " * (4 + len(head) + _width(before))
    return f"    {head}{_printable(shown)}{tail}\n{indent}{'^' * max(1, _width(marked))}"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " if c.isspace() else "·" for c in text)


def _width(text: str) -> int:
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
