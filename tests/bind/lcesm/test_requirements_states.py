from __future__ import annotations

import itertools

import pytest

from roamcast.bind.lcesm.messages import SubscriptionState
from roamcast.bind.lcesm.requirements import Operation, next_operations, next_state
from roamcast.errors import ConflictError

ALLOWED = {
    (Operation.JOIN, SubscriptionState.START): SubscriptionState.ACTIVE,
    (Operation.INACTIVE, SubscriptionState.ACTIVE): SubscriptionState.INACTIVE,
    (Operation.ACTIVE, SubscriptionState.INACTIVE): SubscriptionState.ACTIVE,
    (Operation.QUIT, SubscriptionState.START): SubscriptionState.STOP,
    (Operation.QUIT, SubscriptionState.ACTIVE): SubscriptionState.STOP,
    (Operation.QUIT, SubscriptionState.INACTIVE): SubscriptionState.STOP,
    (Operation.QUIT, SubscriptionState.STOP): SubscriptionState.STOP,
}
PRECONDITIONS = {
    Operation.JOIN: lambda has_source, satisfied: has_source,
    Operation.INACTIVE: lambda has_source, satisfied: not satisfied,
    Operation.ACTIVE: lambda has_source, satisfied: has_source,
    Operation.QUIT: lambda has_source, satisfied: True,
}
CELLS = list(itertools.product(Operation, SubscriptionState, (False, True), (False, True)))


@pytest.mark.parametrize(("operation", "state", "has_source", "satisfied"), CELLS)
def test_next_state_follows_the_table_of_the_paper(
    operation: Operation, state: SubscriptionState, has_source: bool, satisfied: bool
) -> None:
    """Section 4.2; everything else is refused."""
    if (operation, state) in ALLOWED and PRECONDITIONS[operation](has_source, satisfied):
        assert next_state(operation, state, has_source=has_source, satisfied=satisfied) is ALLOWED[operation, state]
    else:
        with pytest.raises(ConflictError, match=f"{operation} is not allowed in state {state}"):
            next_state(operation, state, has_source=has_source, satisfied=satisfied)


@pytest.mark.parametrize(
    ("state", "lost", "has_source", "operations"),
    [
        (SubscriptionState.START, False, True, [Operation.JOIN]),
        (SubscriptionState.START, False, False, []),
        (SubscriptionState.ACTIVE, True, False, [Operation.INACTIVE]),
        (SubscriptionState.ACTIVE, True, True, [Operation.INACTIVE, Operation.ACTIVE]),
        (SubscriptionState.ACTIVE, False, True, []),
        (SubscriptionState.INACTIVE, False, True, [Operation.ACTIVE]),
        (SubscriptionState.INACTIVE, False, False, []),
    ],
)
def test_next_operations(state: SubscriptionState, lost: bool, has_source: bool, operations: list[Operation]) -> None:
    """Losing the source makes inactive, finding one makes active; a change of source is both."""
    assert list(next_operations(state, lost=lost, has_source=has_source)) == operations
