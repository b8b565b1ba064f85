"""Explains syntax errors: what the parser expected, and what the author probably meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from lark import Token
from lark.parsers.lalr_interactive_parser import InteractiveParser

from roamcast.lacl.errors import Span, SpanError
from roamcast.lacl.vocabulary import CLAUSES, DISTANCE_UNITS, FUNCTIONS, KEYWORDS, REGIONS, TIME_UNITS, display, suggest

__all__ = ["unexpected_character", "unexpected_token", "wrong_unit"]

_VARIABLES: Final = {"WHERE": "&attribute", "ON": "@ or @reading", "LIFE_CONTROL": "#attribute"}
_SIGNS: Final = {
    "COMPARISON": "a comparison (=, !=, <, <=, >, >=)",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "a comma",
    "$END": "end of query",
}
_EXAMPLES: Final = "for example Select Where &location in nearest, or Select anyof() Where &location in rang:loc(30)"
_TYPO_HINTS: Final = {
    "==": "use a single =",
    "&&": "use and",
    "|": "use or",
    "!": "use not, or != for a comparison",
    ";": "a query does not end with ;",
    "*": "use all()",
}


def unexpected_token(token: Token, accepted: Sequence[Token], parser: InteractiveParser) -> SpanError:
    """Explain a token, or the end of the text, that the parser refused after `accepted`."""
    before = accepted[-1] if accepted else None
    acceptable = _acceptable(parser)
    if len(accepted) == 2 and accepted[1].type == "WORD":
        return _incomplete_select(accepted[1])
    if token.type == "WORD" and "UNIT" in acceptable and not acceptable & KEYWORDS.keys():
        return wrong_unit(token, of_time=acceptable == {"UNIT"})
    expected = tuple(_options(acceptable, before, parser))
    if token.type == "$END":
        end = (before.end_pos or 0) if before else 0
        return SpanError("unexpected end of query", Span(end, end), expected=expected)
    hint = next(filter(None, _hints(token, accepted, acceptable)), None)
    return SpanError(f"unexpected {display(token)}", _span(token), expected=expected, hint=hint)


def unexpected_character(text: str, at: int, accepted: Sequence[Token], parser: InteractiveParser) -> SpanError:
    """Explain a character that cannot start a token."""
    span = Span(at, at + 1)
    character = text[at]
    if character in "\"'":
        hint = r"close the string on the same line; write \" for a quote inside it"
        return SpanError("unterminated string", span, hint=hint)
    if character in "&#":
        hint = _TYPO_HINTS.get(text[at : at + 2], f'for example {character}name or {character}"any name"')
        return SpanError(f"missing name after {character}", span, hint=hint)
    before = accepted[-1] if accepted else None
    hint = _TYPO_HINTS.get(character, "names with characters other than letters, digits, _ - . need quotes")
    expected = tuple(_options(_acceptable(parser), before, parser))
    return SpanError(f"unexpected {display(character)}", span, expected=expected, hint=hint)


def wrong_unit(word: Token, *, of_time: bool) -> SpanError:
    """Explain a word after a number that is not a unit, or is a unit of the other kind."""
    kind, units, example = ("time", TIME_UNITS, "Every 10 s") if of_time else ("distance", DISTANCE_UNITS, "1.5 km")
    message = f"{display(word)} is not a unit of {kind}"
    return SpanError(message, _span(word), expected=tuple(units), hint=f"for example {example}")


def _incomplete_select(word: Token) -> SpanError:
    """Explain a word after Select that () does not follow: a function, or a misspelt Where."""
    if word.lower() in FUNCTIONS:
        hint = f"for example Select {word}() Where &location in rang:loc(30)"
        return SpanError(f"missing () after {word}", _span(word), hint=hint)
    expected = (*(f"{name}()" for name in FUNCTIONS), "Where")
    hint = " ".join(filter(None, (suggest(word, expected), _EXAMPLES)))
    return SpanError(f"unexpected {display(word)}", _span(word), expected=expected, hint=hint)


def _span(token: Token) -> Span:
    return Span(token.start_pos or 0, token.end_pos or 0)


def _options(acceptable: set[str], before: Token | None, parser: InteractiveParser) -> Iterator[str]:
    after = before.type if before else ""
    clause = _innermost_open(parser, list(KEYWORDS)[: len(CLAUSES)]).type
    if after == "SELECT":
        yield from (f"{function}()" for function in FUNCTIONS)
    elif after == "IN":
        yield from _after_in(_innermost_open(parser, ["VARIABLE"]))
    elif "TRUE" in acceptable:
        yield "a value"
        if "RPAR" in acceptable:
            yield _SIGNS["RPAR"]
    else:
        yield from _other_options(acceptable, clause)
    yield from (word for terminal, word in KEYWORDS.items() if terminal in acceptable - {"TRUE", "FALSE"})
    if "$END" in acceptable:
        yield _SIGNS["$END"]


def _other_options(acceptable: set[str], clause: str) -> Iterator[str]:
    """Further options. Tokens that could only extend the name of a place are not listed."""
    if "NUMBER" in acceptable and "WORD" not in acceptable:
        yield "a number"
    if "UNIT" in acceptable and "WORD" not in acceptable:
        yield f"a unit ({', '.join(TIME_UNITS if clause == 'EVERY' else DISTANCE_UNITS)})"
    if "VARIABLE" in acceptable:
        yield _VARIABLES.get(clause, "a variable")
    unlisted = {"$END", "LPAR"} if "AND" in acceptable else {"$END"}
    yield from (word for terminal, word in _SIGNS.items() if terminal in acceptable - unlisted)


def _after_in(variable: str) -> list[str]:
    if variable == "&location":
        return list(REGIONS.values())
    if variable == "#location":
        return ["a place", *(written for name, written in REGIONS.items() if name in ("box", "circle", "within"))]
    return ["a list in parentheses"]


def _acceptable(parser: InteractiveParser) -> set[str]:
    acceptable: set[str] = parser.accepts()  # type: ignore[no-untyped-call]  # lark's
    return acceptable


def _innermost_open(parser: InteractiveParser, terminals: Sequence[str]) -> Token:
    """The last token of these kinds that is still on the parser's stack: its rule is not complete."""
    waiting = (part for part in reversed(parser.parser_state.value_stack) if isinstance(part, Token))
    return next((token for token in waiting if token.type in terminals), Token("", ""))


def _hints(token: Token, accepted: Sequence[Token], acceptable: set[str]) -> Iterator[str | None]:
    """Possible hints, best first."""
    yield _misspelt_keyword(token, acceptable)
    if not accepted:
        return
    if token.type == accepted[-1].type == "COMPARISON":
        yield _TYPO_HINTS.get(f"{accepted[-1]}{token}")
    if token.type == accepted[-1].type == "WORD" and {"AND", "RPAR"} & acceptable:
        yield "a string of several words needs quotes"
    # A misspelt keyword may have been read as the last word of a place.
    if len(accepted) > 1 and accepted[-2].type in ("WORD", "UNIT", "NUMBER"):
        yield _misspelt_keyword(accepted[-1], acceptable)
    yield _misplaced_keyword(token, acceptable)


def _misspelt_keyword(token: Token, acceptable: set[str]) -> str | None:
    """A hint if a word resembles a keyword that is possible here."""
    if token.type != "WORD":
        return None
    return suggest(token, [word for terminal, word in KEYWORDS.items() if terminal in acceptable])


def _misplaced_keyword(token: Token, acceptable: set[str]) -> str | None:
    if token.type not in KEYWORDS:
        return None
    if "STRING" in acceptable:
        return f'{token} is a keyword; write "{token}" to use it as a name'
    if KEYWORDS[token.type] in CLAUSES and "$END" in acceptable:
        return f"each clause may appear once, in this order: {', '.join(CLAUSES)}"
    return None
