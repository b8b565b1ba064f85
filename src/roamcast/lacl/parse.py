"""Parses a text into a query. Nesting is limited, so no text can exhaust the Python stack."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib.resources import files
from typing import Final, cast

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedToken
from lark.parsers.lalr_interactive_parser import InteractiveParser

from roamcast.lacl.builder import Builder
from roamcast.lacl.errors import LaclError, Span, SpanError
from roamcast.lacl.query import Query
from roamcast.lacl.syntax_errors import unexpected_character, unexpected_token
from roamcast.lacl.vocabulary import MAX_BYTES, MAX_NESTING, terminal_for

__all__ = ["parse"]

_OPERAND_ENDS: Final = ("AND", "OR", "RPAR", "ON", "EVERY", "LIFE_CONTROL")


def parse(text: str) -> Query:
    """Parse one query. Raises LaclError, and nothing else, if the text is not a query."""
    try:
        _check_text(text)
        return _parse(text)
    except SpanError as error:
        raise LaclError.at(text, error) from None


def _check_text(text: str) -> None:
    try:
        size = len(text.encode()) if len(text) <= MAX_BYTES else len(text)
    except UnicodeEncodeError as error:
        raise SpanError("not a valid Unicode character", Span(error.start, error.start + 1)) from None
    if size > MAX_BYTES:
        raise SpanError(
            f"the query is longer than {MAX_BYTES:,} bytes", None, hint="split it into several subscriptions"
        )
    if (at := text.find("\0")) >= 0:
        raise SpanError("the character U+0000 is not allowed", Span(at, at + 1))


def _parse(text: str) -> Query:
    parser = _parser().parse_interactive(text)
    nesting = _NestingLimit()
    accepted: list[Token] = []
    try:
        for token in parser.lexer_thread.lex(parser.parser_state):  # type: ignore[no-untyped-call]  # lark's
            nesting.enter(token)
            parser.feed_token(token)
            accepted.append(token)
        query = cast(Query, parser.feed_token(Token("$END", "")))
    except UnexpectedToken as error:
        raise unexpected_token(error.token, accepted, _replay(accepted)) from None
    except UnexpectedCharacters as error:
        raise unexpected_character(text, error.pos_in_stream or 0, accepted, _replay(accepted)) from None
    return Query(query.select, query.where, query.on, query.every, query.life_control, text=text)


def _replay(accepted: Sequence[Token]) -> InteractiveParser:
    """Return the parser as it was before the token that it refused: that token may have made it close a rule."""
    parser = _parser().parse_interactive("")
    for token in accepted:
        parser.feed_token(token)
    return parser


class _NestingLimit:
    """Counts open parentheses, and `not`s whose operand has not ended."""

    def __init__(self) -> None:
        self._open: list[str] = []

    def enter(self, token: Token) -> None:
        if token.type in ("NOT", "LPAR"):
            self._open.append(token.type)
            if len(self._open) > MAX_NESTING:
                span = Span(token.start_pos or 0, token.end_pos or 0)
                hint = "use and, or and in (…) instead"
                raise SpanError(f"nested more than {MAX_NESTING} levels deep", span, hint=hint)
        elif token.type in _OPERAND_ENDS:
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
    return word.update(type=terminal_for(word))
