"""The subscriptions of the benchmark."""

from __future__ import annotations

from pathlib import Path

from nodes import running_node

from roamcast.lab.bench.subscriptions import _add_singles, _single, _single_lacl
from roamcast.node.control.queries import Queries
from roamcast.places import Places
from roamcast.settings_model import NodeLimits
from roamcast.space import GEOGRAPHIC


def test_single_ones_are_all_different_and_equal_as_lacl(tmp_path: Path) -> None:
    """And a node accepts them."""
    queries = Queries(Places({}, GEOGRAPHIC), GEOGRAPHIC, NodeLimits())
    texts = [_single_lacl(number)["lacl"] for number in range(1_000)]
    assert len(set(texts)) == len(texts)
    with running_node(tmp_path) as node:
        anna = node.subscriber()
        token = str(anna.token)
        figures = _add_singles(node.url, token, 40, "single", _single)
        figures |= _add_singles(node.url, token, 40, "single_lacl", _single_lacl)
        stored = {subscription.id: subscription.lacl for subscription in anna.subscriptions()}
    assert len(stored) == 80
    assert min(figures["single_per_s"], figures["single_lacl_per_s"]) > 0
    for number in range(40):
        text = stored[f"single-{number}"]
        assert text == stored[f"single_lacl-{number}"] == queries.accept(texts[number]).text
