"""What could have stood where the parser stopped, in words, and what the writer may have meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from lark import Token
from lark.parsers.lalr_interactive_parser import InteractiveParser

from roamcast.lacl.errors import Span, SpanError
from roamcast.lacl.vocabulary import (
    CLAUSES,
    DISTANCE_UNITS,
    FUNCTIONS,
    KEYWORDS,
    REGIONS,
    TIME_UNITS,
    close_match,
    shown,
)

__all__ = ["strange_character", "unexpected_token"]

_VARIABLES: Final = {"WHERE": "&attribute", "ON": "@ or @reading", "LIFE_CONTROL": "#attribute"}
_SIGNS: Final = {
    "COMPARISON": "a comparison (=, !=, <, <=, >, >=)",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "a comma",
    "$END": "the end",
}
_SLIPS: Final = {
    "==": "write one =",
    "&&": "write and",
    "|": "write or",
    "!": "write not, or != to compare",
    ";": "a text holds one query and needs no sign at its end",
    "*": "write all()",
}


def unexpected_token(token: Token, taken: Sequence[Token], parser: InteractiveParser) -> SpanError:
    """The token, or the end, at which the parser stopped, after the tokens that it took."""
    before = taken[-1] if taken else None
    accepted = _accepted(parser)
    expected = tuple(_words(accepted, before, parser))
    if token.type == "$END":
        end = (before.end_pos or 0) if before else 0
        return SpanError("the text ends here", Span(end, end), expected=expected)
    span = Span(token.start_pos or 0, token.end_pos or 0)
    hint = next(filter(None, _hints(token, taken, accepted)), None)
    return SpanError(f"unexpected {shown(token)}", span, expected=expected, hint=hint)


def strange_character(text: str, at: int, taken: Sequence[Token], parser: InteractiveParser) -> SpanError:
    """A character with which nothing begins."""
    span = Span(at, at + 1)
    character = text[at]
    if character in "\"'":
        hint = r"close it on the same line; inside, write \" for the quote itself"
        return SpanError("this quote is never closed", span, hint=hint)
    if character in "&#":
        hint = _SLIPS.get(text[at : at + 2], f'as in {character}name or {character}"any name"')
        return SpanError(f"no name after {character}", span, hint=hint)
    before = taken[-1] if taken else None
    hint = _SLIPS.get(character, "put names that hold other characters than letters, digits, _ - . in quotes")
    expected = tuple(_words(_accepted(parser), before, parser))
    return SpanError(f"unexpected {shown(character)}", span, expected=expected, hint=hint)


def _words(accepted: set[str], before: Token | None, parser: InteractiveParser) -> Iterator[str]:
    after = before.type if before else ""
    clause = _open(parser, list(KEYWORDS)[: len(CLAUSES)]).type
    if after == "SELECT":
        yield from (f"{function}()" for function in FUNCTIONS)
    elif after == "IN":
        yield from _after_in(_open(parser, ["VARIABLE"]))
    elif "TRUE" in accepted:
        yield "a value"
        if "RPAR" in accepted:
            yield _SIGNS["RPAR"]
    else:
        yield from _elsewhere(accepted, clause)
    yield from (word for terminal, word in KEYWORDS.items() if terminal in accepted - {"TRUE", "FALSE"})
    if "$END" in accepted:
        yield _SIGNS["$END"]


def _elsewhere(accepted: set[str], clause: str) -> Iterator[str]:
    """What could make the name of a place longer is not worth telling."""
    if "NUMBER" in accepted and "WORD" not in accepted:
        yield "a number"
    if "UNIT" in accepted and "WORD" not in accepted:
        yield f"a unit ({', '.join(TIME_UNITS if clause == 'EVERY' else DISTANCE_UNITS)})"
    if "VARIABLE" in accepted:
        yield _VARIABLES.get(clause, "a variable")
    unsaid = {"$END", "LPAR"} if "AND" in accepted else {"$END"}
    yield from (word for terminal, word in _SIGNS.items() if terminal in accepted - unsaid)


def _after_in(variable: str) -> list[str]:
    if variable == "&location":
        return list(REGIONS.values())
    if variable == "#location":
        return ["a place", *(written for name, written in REGIONS.items() if name in ("box", "circle", "within"))]
    return ["a list in parentheses"]


def _accepted(parser: InteractiveParser) -> set[str]:
    accepted: set[str] = parser.accepts()  # type: ignore[no-untyped-call]  # lark's
    return accepted


def _open(parser: InteractiveParser, terminals: Sequence[str]) -> Token:
    """The last of these that was read and whose rule is not yet whole: it waits on the parser's stack."""
    waiting = (part for part in reversed(parser.parser_state.value_stack) if isinstance(part, Token))
    return next((token for token in waiting if token.type in terminals), Token("", ""))


def _hints(token: Token, taken: Sequence[Token], accepted: set[str]) -> Iterator[str | None]:
    """The best first."""
    yield _close(token, accepted)
    if not taken:
        return
    if token.type == taken[-1].type == "COMPARISON":
        yield _SLIPS.get(f"{taken[-1]}{token}")
    if token.type == taken[-1].type == "WORD" and {"AND", "RPAR"} & accepted:
        yield "put a text of several words in quotes"
    # A misspelt keyword may have been taken for the last word of a place.
    if len(taken) > 1 and taken[-2].type in ("WORD", "UNIT", "NUMBER"):
        yield _close(taken[-1], accepted)
    yield _reserved(token, accepted)


def _close(token: Token, accepted: set[str]) -> str | None:
    """A word that looks like one of the keywords that could stand there."""
    if token.type != "WORD":
        return None
    return close_match(token, [word for terminal, word in KEYWORDS.items() if terminal in accepted])


def _reserved(token: Token, accepted: set[str]) -> str | None:
    if token.type not in KEYWORDS:
        return None
    if "STRING" in accepted:
        return f'{token} is a word of the language; as a name write "{token}"'
    if KEYWORDS[token.type] in CLAUSES and "$END" in accepted:
        return f"the clauses stand in this order, each once: {', '.join(CLAUSES)}"
    return None
