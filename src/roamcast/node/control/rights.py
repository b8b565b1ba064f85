"""Rights of callers, compared in the request group: an id may belong to somebody else by the time of the request."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from roamcast.node.callers import Caller, check_rights
from roamcast.node.control.request_group import RequestGroup

__all__ = ["checked"]

T = TypeVar("T")


def checked(
    apply: Callable[[RequestGroup], T], by: Caller | None, of: Collection[str] = ()
) -> Callable[[RequestGroup], T]:
    """`apply`, if the caller may then act for the entities `of`; see `check_rights`. None may act for all."""
    if by is None:
        return apply

    def apply_checked(group: RequestGroup) -> T:
        check_rights(by, of, group.find)
        return apply(group)

    return apply_checked
