"""The part of a subscription's state that depends on peers."""

from __future__ import annotations

from roamcast.node.control.wants import NodeWants
from roamcast.node.path_states import PathStates
from roamcast.space import PLANAR


def test_a_subscription_is_starting_until_peers_are_added() -> None:
    """After a start of the node, or when a peer has just joined. One of plan bind needs only those of its sources."""
    wants, joining = NodeWants(lambda _: "0" * 32, 7, PLANAR), ["south"]
    paths = PathStates(lambda: wants, dict, dict, 5.0, lambda: joining)
    state = paths.of("q", None)
    assert state is not None
    assert (state.state, state.peers) == ("starting", ("south",))
    assert paths.of("q", ["b4@west"]) is None
    assert paths.of("q", ["b4@south"]) == state
    joining.clear()
    assert paths.of("q", None) is None
