"""Builds regions from calls: `box(…)`, `circle(…)`, `within(…)`, `rang:loc(…)`, `nearest(…)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from roamcast import model
from roamcast.lacl.errors import Span, SpanError
from roamcast.lacl.syntax import BoxRegion, Circle, Literal, Nearest, Number, RangLoc, Region, Text, Within
from roamcast.lacl.vocabulary import REGIONS, display, suggest

__all__ = ["make_region"]


def make_region(name: str, arguments: Sequence[Literal], span: Span) -> Region:
    """Build a region. Raises SpanError for an unknown name and for a wrong number or type of arguments."""
    plain = name.lower().replace("range:", "rang:")
    if plain not in _BUILDERS:
        options = tuple(REGIONS.values())
        raise SpanError(f"unknown region {display(name)}", span, expected=options, hint=suggest(name, REGIONS))
    count, build = _BUILDERS[plain]
    if len(arguments) != count:
        usage = "nearest(k)" if plain == "nearest" else REGIONS[plain]
        values = "1 value" if count == 1 else f"{count} values"
        raise SpanError(f"{name} needs {values}, not {len(arguments)}", span, expected=(usage,))
    return build(arguments, span)


def _rang_loc(arguments: Sequence[Literal], span: Span) -> RangLoc:
    return RangLoc(_number(arguments[0]), span=span)


def _nearest(arguments: Sequence[Literal], span: Span) -> Nearest:
    count = _number(arguments[0])
    if not count.is_integer():
        raise SpanError("nearest needs a whole number", arguments[0].span)
    return Nearest(int(count), span=span)


def _box(arguments: Sequence[Literal], span: Span) -> BoxRegion:
    return BoxRegion(model.Box(*map(_number, arguments)), span=span)


def _circle(arguments: Sequence[Literal], span: Span) -> Circle:
    return Circle(*map(_number, arguments), span=span)


def _within(arguments: Sequence[Literal], span: Span) -> Within:
    (place,) = arguments
    if not isinstance(place, Text):
        raise SpanError("not the name of a place", place.span, expected=("a name in quotes",))
    return Within(place.value, span=span)


def _number(argument: Literal) -> float:
    if not isinstance(argument, Number):
        type_name = "string" if isinstance(argument, Text) else "boolean"
        raise SpanError(f"unexpected {type_name}", argument.span, expected=("a number",))
    return argument.value


_BUILDERS: Final[Mapping[str, tuple[int, Callable[[Sequence[Literal], Span], Region]]]] = {
    "rang:loc": (1, _rang_loc),
    "nearest": (1, _nearest),
    "box": (4, _box),
    "circle": (3, _circle),
    "within": (1, _within),
}
