"""From text to a query. The parser keeps its own stack and nesting is bounded: no text exhausts Python's."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib.resources import files
from typing import Final, cast

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedToken
from lark.parsers.lalr_interactive_parser import InteractiveParser

from roamcast.lacl.build import Builder
from roamcast.lacl.errors import LaclError, Span, SpanError
from roamcast.lacl.expected import strange_character, unexpected_token
from roamcast.lacl.query import Query
from roamcast.lacl.vocabulary import MAX_BYTES, MAX_NESTING, terminal_of

__all__ = ["parse"]

_ENDS_AN_OPERAND: Final = ("AND", "OR", "RPAR", "ON", "EVERY", "LIFE_CONTROL")


def parse(text: str) -> Query:
    """Read one query. Raises LaclError, and nothing else, for every text that is none."""
    try:
        _check_text(text)
        return _parsed(text)
    except SpanError as fault:
        raise LaclError.at(text, fault) from None


def _check_text(text: str) -> None:
    try:
        size = len(text.encode()) if len(text) <= MAX_BYTES else len(text)
    except UnicodeEncodeError as error:
        raise SpanError("not a Unicode character", Span(error.start, error.start + 1)) from None
    if size > MAX_BYTES:
        raise SpanError(
            f"the text is longer than {MAX_BYTES:,} bytes", None, hint="split it into several subscriptions"
        )
    if (at := text.find("\0")) >= 0:
        raise SpanError("the character U+0000 is not allowed", Span(at, at + 1))


def _parsed(text: str) -> Query:
    parser = _parser().parse_interactive(text)
    nesting = _Nesting()
    taken: list[Token] = []
    try:
        for token in parser.lexer_thread.lex(parser.parser_state):  # type: ignore[no-untyped-call]  # lark's
            nesting.enter(token)
            parser.feed_token(token)
            taken.append(token)
        query = cast(Query, parser.feed_token(Token("$END", "")))
    except UnexpectedToken as error:
        raise unexpected_token(error.token, taken, _after(taken)) from None
    except UnexpectedCharacters as error:
        raise strange_character(text, error.pos_in_stream or 0, taken, _after(taken)) from None
    return Query(query.select, query.where, query.on, query.every, query.life_control, text=text)


def _after(taken: Sequence[Token]) -> InteractiveParser:
    """The parser before the token that it refused, which may have led it to close a rule that was still open."""
    parser = _parser().parse_interactive("")
    for token in taken:
        parser.feed_token(token)
    return parser


class _Nesting:
    """What is open: a parenthesis until it is closed, a `not` until its operand ends."""

    def __init__(self) -> None:
        self._open: list[str] = []

    def enter(self, token: Token) -> None:
        if token.type in ("NOT", "LPAR"):
            self._open.append(token.type)
            if len(self._open) > MAX_NESTING:
                span = Span(token.start_pos or 0, token.end_pos or 0)
                hint = "join conditions with and, or and in (…) instead"
                raise SpanError(f"nested more than {MAX_NESTING} deep", span, hint=hint)
        elif token.type in _ENDS_AN_OPERAND:
            while self._open and self._open[-1] == "NOT":
                self._open.pop()
            if token.type == "RPAR" and self._open:
                self._open.pop()


@functools.cache
def _parser() -> Lark:
    return Lark(
        files(__package__).joinpath("grammar.lark").read_text("utf-8"),
        parser="lalr",
        lexer="basic",
        start="query",
        transformer=Builder(),
        lexer_callbacks={"WORD": _keyword},
    )


def _keyword(word: Token) -> Token:
    return word.update(type=terminal_of(word))
