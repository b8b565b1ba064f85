"""Which columns of events and subscriptions a result has."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

from roamcast.errors import InputError
from roamcast.spark.rows.lines import CORRUPT

__all__ = ["Chosen", "choose"]


class Chosen(NamedTuple):
    """A column of one side, and its name in the result; None: the name that it has, without those of outer columns."""

    of_event: bool
    name: str
    result: str | None = None


def choose(
    columns: Sequence[str] | None, default: Sequence[str], of_events: Sequence[str], of_subscriptions: Sequence[str]
) -> list[Chosen]:
    """The columns of the result. What both sides have is called `event_NAME` and `subscription_NAME`.

    Raises InputError for names that no side has, or both.
    """
    if columns is not None and not columns:
        raise InputError("no columns", where="columns", hint="name at least one")
    both = set(default if columns is None else of_events).intersection(of_subscriptions)
    known = {
        f"{noun}_{name}" if name in both else name: Chosen(noun == "event", name, f"{noun}_{name}")
        if name in both
        else Chosen(noun == "event", name)
        for noun, side in (("event", of_events if columns else default), ("subscription", of_subscriptions))
        for name in side
    }
    if columns is None:
        return list(known.values())
    for name in columns:
        if name in both:
            hint = f"write event_{name} or subscription_{name}"
            raise InputError(f"both sides have a column {name!r}", where="columns", hint=hint)
        if name not in known and "." not in name:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            hint += f"columns: {', '.join(each for each in known if each != CORRUPT)}; "
            hint += "others of subscriptions are kept by compile(columns=)"
            raise InputError(f"no column {name!r}", where="columns", hint=hint)
    return [known.get(name, Chosen(True, name)) for name in columns]
