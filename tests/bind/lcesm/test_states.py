from __future__ import annotations

import itertools

import pytest

from roamcast.bind.lcesm.states import Operation, SubscriptionState, after
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
    Operation.JOIN: lambda found, satisfied: found,
    Operation.INACTIVE: lambda found, satisfied: not satisfied,
    Operation.ACTIVE: lambda found, satisfied: found,
    Operation.QUIT: lambda found, satisfied: True,
}
CELLS = list(itertools.product(Operation, SubscriptionState, (False, True), (False, True)))


@pytest.mark.parametrize(("operation", "state", "found", "satisfied"), CELLS)
def test_each_cell(operation: Operation, state: SubscriptionState, found: bool, satisfied: bool) -> None:
    """An operation leads where section 4.2 says, and is refused where it says nothing."""
    if (operation, state) in ALLOWED and PRECONDITIONS[operation](found, satisfied):
        assert after(operation, state, found=found, satisfied=satisfied) is ALLOWED[operation, state]
    else:
        with pytest.raises(ConflictError, match=f"{operation} is not allowed in state {state}"):
            after(operation, state, found=found, satisfied=satisfied)
