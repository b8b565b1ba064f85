"""The states of the subscriptions in the scene."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodes import RunningNode, in_process_node, until

from roamcast.node.scene_states import SceneStates

NEAREST = "Select Where &context = noise and &location in nearest"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with in_process_node(tmp_path, scene=True) as node:
        yield node


def shown(node: RunningNode, id: str) -> dict[str, Any]:
    scene: dict[str, Any] = node.client().scene()
    feature: dict[str, Any] = scene["layers"]["subscriptions"][id]
    return feature


def test_a_subscription_without_a_source_says_so(node: RunningNode) -> None:
    """Until it has one, and again when that is gone."""
    ann = node.subscriber("ann", x=0.0, y=0.0)
    ann.subscribe(NEAREST, id="near")
    until(lambda: shown(node, "near").get("state") == "start", "the state")
    assert shown(node, "near") == {
        "geometry": None,
        "label": "ann: follows sources",
        "kind": "subscription",
        "state": "start",
        "since": ann.subscription("near").since,
        "why": "no source has been found yet",
    }
    mic = node.source("mic", x=1.0, y=0.0, attributes={"context": "noise"})
    until(lambda: "state" not in shown(node, "near"), "the source")
    mic.unregister()
    until(lambda: shown(node, "near").get("state") == "inactive", "the source to go")


def test_reasons_do_not_tell_attributes_or_positions(node: RunningNode) -> None:
    """The subscriber is told that it has no such role, or is not in such a box; everybody sees the page."""
    ann = node.subscriber("ann", x=0.0, y=0.0)
    ann.subscribe(f"{NEAREST} Life-control #role = guard", id="role")
    ann.subscribe(f"{NEAREST} Life-control #location in box(5, 5, 6, 6)", id="place")
    for id in ("role", "place"):
        until(lambda id=id: shown(node, id).get("state") == "stop", "the state")
        assert "ann" in str(ann.subscription(id).why)
        assert shown(node, id)["why"] == "its life-control does not hold"


def test_a_feature_changes_only_with_its_state(node: RunningNode) -> None:
    ann = node.subscriber("ann", x=0.0, y=0.0)
    for number in range(3):
        ann.subscribe(NEAREST, id=f"near-{number}")
    ann.subscribe(box=(0, 0, 1, 1), id="box")
    until(lambda: all(shown(node, f"near-{number}").get("state") == "start" for number in range(3)), "the states")
    service, scene = node.service, node.service.scene
    assert scene is not None
    states = SceneStates(scene, service.control, service.path_states)

    async def watch() -> list[Any]:
        with scene.watch() as watcher:
            watcher.take()
            await states.refresh()
            return [message for message in watcher.take() if message[0] == "change"]

    assert asyncio.run_coroutine_threadsafe(watch(), service._loop).result(10) == []


def test_more_subscriptions_than_are_read_at_once_take_turns(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roamcast.node.scene_states._AT_ONCE", 1)
    ann = node.subscriber("ann", x=0.0, y=0.0)
    for number in range(3):
        ann.subscribe(NEAREST, id=f"near-{number}")
    until(lambda: all(shown(node, f"near-{number}").get("state") == "start" for number in range(3)), "the states")
