"""Calls that name a region: `box(…)`, `circle(…)`, `within(…)`, `rang:loc(…)`, `nearest(…)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from roamcast import model
from roamcast.lacl.errors import Span, SpanError
from roamcast.lacl.syntax import BoxRegion, Circle, Literal, Nearest, Number, RangLoc, Region, Text, Within
from roamcast.lacl.vocabulary import REGIONS, close_match, shown

__all__ = ["region_of"]


def region_of(name: str, arguments: Sequence[Literal], span: Span) -> Region:
    """Raises SpanError for an unknown name, too many or too few arguments, or ones of the wrong kind."""
    plain = name.lower().replace("range:", "rang:")
    if plain not in _MAKERS:
        options = tuple(REGIONS.values())
        raise SpanError(f"no region {shown(name)}", span, expected=options, hint=close_match(name, REGIONS))
    count, make = _MAKERS[plain]
    if len(arguments) != count:
        wanted = "nearest(k)" if plain == "nearest" else REGIONS[plain]
        values = "1 value" if count == 1 else f"{count} values"
        raise SpanError(f"{name} takes {values}, not {len(arguments)}", span, expected=(wanted,))
    return make(arguments, span)


def _rang_loc(arguments: Sequence[Literal], span: Span) -> RangLoc:
    return RangLoc(_number(arguments[0]), span=span)


def _nearest(arguments: Sequence[Literal], span: Span) -> Nearest:
    count = _number(arguments[0])
    if not count.is_integer():
        raise SpanError("nearest takes a whole number", arguments[0].span)
    return Nearest(int(count), span=span)


def _box(arguments: Sequence[Literal], span: Span) -> BoxRegion:
    return BoxRegion(model.Box(*map(_number, arguments)), span=span)


def _circle(arguments: Sequence[Literal], span: Span) -> Circle:
    return Circle(*map(_number, arguments), span=span)


def _within(arguments: Sequence[Literal], span: Span) -> Within:
    (place,) = arguments
    if not isinstance(place, Text):
        raise SpanError("a place has a name", place.span, expected=("a name in quotes",))
    return Within(place.value, span=span)


def _number(argument: Literal) -> float:
    if not isinstance(argument, Number):
        raise SpanError(
            f"{'a text' if isinstance(argument, Text) else 'a truth value'} here", argument.span, expected=("a number",)
        )
    return argument.value


_MAKERS: Final[Mapping[str, tuple[int, Callable[[Sequence[Literal], Span], Region]]]] = {
    "rang:loc": (1, _rang_loc),
    "nearest": (1, _nearest),
    "box": (4, _box),
    "circle": (3, _circle),
    "within": (1, _within),
}
