"""The states of a subscription, and the operations between it and its binding agent."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from roamcast.errors import ConflictError

__all__ = ["Operation", "SubscriptionState", "next_operations", "next_state"]


class SubscriptionState(StrEnum):
    START = "start"  # it runs, and its agent has not found a source yet
    ACTIVE = "active"  # it has a source
    INACTIVE = "inactive"  # it has lost its source, and its agent looks for another
    STOP = "stop"  # it does not run


class Operation(StrEnum):
    JOIN = "join"
    INACTIVE = "inactive"
    ACTIVE = "active"
    QUIT = "quit"


_NEXT: Final[Mapping[tuple[Operation, SubscriptionState], SubscriptionState]] = {
    (Operation.JOIN, SubscriptionState.START): SubscriptionState.ACTIVE,
    (Operation.INACTIVE, SubscriptionState.ACTIVE): SubscriptionState.INACTIVE,
    (Operation.ACTIVE, SubscriptionState.INACTIVE): SubscriptionState.ACTIVE,
    **{(Operation.QUIT, state): SubscriptionState.STOP for state in SubscriptionState},
}


def next_state(operation: Operation, state: SubscriptionState, *, found: bool, satisfied: bool) -> SubscriptionState:
    """The state after an operation. Raises ConflictError if it is not allowed.

    `found`: the agent has found a qualifying source, as join and active require. `satisfied`: the location constraint
    holds for the current source; inactive requires that it does not.
    """
    allowed = not satisfied if operation is Operation.INACTIVE else found or operation is Operation.QUIT
    if not allowed or (operation, state) not in _NEXT:
        conditions = f"found={found}, satisfied={satisfied}"
        raise ConflictError(f"{operation} is not allowed in state {state} ({conditions})", where="binding")
    return _NEXT[operation, state]


def next_operations(state: SubscriptionState, *, lost: bool, found: bool) -> tuple[Operation, ...]:
    """The operations of an agent when a subscription's source no longer qualifies (`lost`) or it has one (`found`)."""
    if state is SubscriptionState.ACTIVE and lost:
        return (Operation.INACTIVE, Operation.ACTIVE) if found else (Operation.INACTIVE,)
    if state is SubscriptionState.ACTIVE or not found:
        return ()
    return (Operation.JOIN,) if state is SubscriptionState.START else (Operation.ACTIVE,)
