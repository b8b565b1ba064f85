"""The states of a subscription and the operations between it and its binding agent: a pure table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from roamcast.errors import ConflictError

__all__ = ["Operation", "SubscriptionState", "after"]


class SubscriptionState(StrEnum):
    START = "start"  # it runs, and its agent has not found a source yet
    ACTIVE = "active"  # it has a source
    INACTIVE = "inactive"  # it had one, and its agent looks for another
    STOP = "stop"  # it does not run


class Operation(StrEnum):
    JOIN = "join"
    INACTIVE = "inactive"
    ACTIVE = "active"
    QUIT = "quit"


_AFTER: Final[Mapping[tuple[Operation, SubscriptionState], SubscriptionState]] = {
    (Operation.JOIN, SubscriptionState.START): SubscriptionState.ACTIVE,
    (Operation.INACTIVE, SubscriptionState.ACTIVE): SubscriptionState.INACTIVE,
    (Operation.ACTIVE, SubscriptionState.INACTIVE): SubscriptionState.ACTIVE,
    **{(Operation.QUIT, state): SubscriptionState.STOP for state in SubscriptionState},
}


def after(operation: Operation, state: SubscriptionState, *, found: bool, satisfied: bool) -> SubscriptionState:
    """The state that an operation leads to. Raises ConflictError where it is not allowed.

    `found`: the agent has found a qualifying source; join and active need one. `satisfied`: the location constraint
    holds for the source it has; inactive needs that it does not.
    """
    allowed = not satisfied if operation is Operation.INACTIVE else found or operation is Operation.QUIT
    if not allowed or (operation, state) not in _AFTER:
        given = f"found={found}, satisfied={satisfied}"
        raise ConflictError(f"{operation} is not allowed in state {state} ({given})", where="binding")
    return _AFTER[operation, state]
