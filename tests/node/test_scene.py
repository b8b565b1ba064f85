"""The scene: layers, slow watchers, features that expire."""

from __future__ import annotations

import orjson
import pytest
from nodes import RunningNode, in_process_node, until

from roamcast.client.streams import SseReader
from roamcast.errors import CapacityError, NotFoundError
from roamcast.node.scene import Feature, LayerChange, Scene


def point(x: float = 0, y: float = 0) -> Feature:
    return {"geometry": {"type": "Point", "coordinates": [x, y]}, "label": "", "kind": "thing"}


def new_scene(most_features: int = 10) -> Scene:
    return Scene("title", "planar", most_features=most_features, most_watchers=2)


def ids(scene: Scene) -> dict[str, list[str]]:
    return {layer: sorted(features) for layer, features in scene.snapshot()["layers"].items()}


def test_a_change_clears_then_removes_then_sets() -> None:
    """On one layer only."""
    scene = new_scene()
    scene.apply(LayerChange("a", {"1": point(), "2": point()}), 0)
    scene.apply(LayerChange("b", {"1": point()}), 0)
    scene.apply(LayerChange("a", {"2": point(), "3": point()}, remove=["2"], clear=True), 0)
    assert ids(scene) == {"a": ["2", "3"], "b": ["1"]}


def test_features_with_a_ttl_expire() -> None:
    """Setting one again without a ttl keeps it."""
    scene = new_scene()
    scene.apply(LayerChange("a", {"1": point(), "2": point(), "3": point()}, ttl=5), 100)
    scene.apply(LayerChange("a", {"2": point()}), 101)
    scene.apply(LayerChange("a", {"3": point()}, ttl=5), 102)
    scene.expire(104.9)
    assert ids(scene) == {"a": ["1", "2", "3"]}
    scene.expire(105)
    assert ids(scene) == {"a": ["2", "3"]}
    scene.expire(1000)
    assert ids(scene) == {"a": ["2"]}


def test_a_full_scene_refuses_new_features() -> None:
    """Replacing features is allowed."""
    scene = new_scene(most_features=2)
    scene.apply(LayerChange("a", {"1": point(), "2": point()}), 0)
    with pytest.raises(CapacityError):
        scene.apply(LayerChange("b", {"3": point()}), 0)
    assert ids(scene) == {"a": ["1", "2"]}
    scene.apply(LayerChange("a", {"3": point()}, remove=["1"]), 0)
    assert ids(scene) == {"a": ["2", "3"]}


def test_a_watcher_gets_a_snapshot_then_combined_changes() -> None:
    """Only the last of several changes to a feature is sent."""
    scene = new_scene()
    scene.apply(LayerChange("a", {"1": point()}), 0)
    with scene.watch() as watcher:
        ((name, snapshot),) = watcher.take()
        assert (name, list(snapshot["layers"]["a"])) == ("snapshot", ["1"])
        scene.apply(LayerChange("a", {"1": point(1), "2": point()}), 0)
        scene.apply(LayerChange("a", {"1": point(2)}, remove=["2"]), 0)
        scene.set_counters({"events_accepted": 1})
        scene.set_counters({"events_accepted": 2})
        assert watcher.take() == [
            ("change", {"layer": "a", "set": {"1": point(2)}, "remove": ["2"]}),
            ("counters", {"events_accepted": 2}),
        ]
        assert watcher.take() == []


def test_a_watcher_far_behind_gets_a_new_snapshot() -> None:
    """Its pending changes stay bounded."""
    scene = new_scene(most_features=3)
    with scene.watch() as watcher:
        watcher.take()
        for number in range(100):
            scene.apply(LayerChange("a", {str(number): point()}, clear=True), 0)
        ((name, snapshot),) = watcher.take()
        assert (name, list(snapshot["layers"]["a"])) == ("snapshot", ["99"])


def test_too_many_watchers_are_refused() -> None:
    """Until one of them ends."""
    scene = new_scene()
    with scene.watch():
        with scene.watch(), pytest.raises(CapacityError):
            scene.check_capacity()
        scene.check_capacity()


def test_the_node_shows_entities_and_subscriptions(node: RunningNode) -> None:
    """Entities as they move; boxes as areas, in one piece across the antimeridian."""
    node.source("car", x=1, y=2).move(3, 4)
    anna = node.subscriber("anna", x=5, y=6)
    anna.subscribe(box=(170, 0, -170, 1), crosses_antimeridian=True, terms=["ice"], id="box")
    anna.subscribe(terms=["ice"], id="anywhere")
    layers = anna.scene()["layers"]
    assert layers["sources"]["car"]["geometry"] == {"type": "Point", "coordinates": [3, 4]}
    assert layers["subscribers"]["anna"]["label"] == "anna"
    assert list(layers["subscriptions"]) == ["box"]
    ring = layers["subscriptions"]["box"]["geometry"]["coordinates"][0]
    assert ring == [[170, 0], [190, 0], [190, 1], [170, 1], [170, 0]]
    anna.unsubscribe("box")
    assert "subscriptions" not in anna.scene()["layers"]


def test_the_scene_is_filled_at_start(tmp_path_factory: pytest.TempPathFactory) -> None:
    """From the registry."""
    data = tmp_path_factory.mktemp("data")
    with in_process_node(data, scene=False) as node:
        node.source("car", x=1, y=2)
        node.subscriber("anna").subscribe(box=(0, 0, 1, 1), id="box")
    with in_process_node(data, scene=True) as node:
        assert {layer: list(f) for layer, f in node.client().scene()["layers"].items()} == {
            "sources": ["car"],
            "subscriptions": ["box"],
        }


def test_a_node_without_scene_returns_404(tmp_path_factory: pytest.TempPathFactory) -> None:
    """With a hint how to enable it."""
    with in_process_node(tmp_path_factory.mktemp("data"), scene=False) as node:
        with pytest.raises(NotFoundError, match="--scene"):
            node.client().scene()
        assert node.http.get("/v1/scene/stream").status_code == 404


def test_the_stream_sends_expiring_features_and_counters(node: RunningNode) -> None:
    """A snapshot, then a feature that comes and goes, then changed counters."""
    operator, source = node.operator(), node.source()
    seen: list[tuple[str, dict[str, object]]] = []
    reader = SseReader()
    with node.http.stream("GET", "/v1/scene/stream") as response:
        for piece in response.iter_bytes():
            for event in reader.feed(piece):
                seen.append((event.name, orjson.loads(event.data)))
                if len(seen) == 1:
                    operator.update_scene("flashes", set={"f": dict(point(1, 2))}, ttl=0.2)
                    source.publish({"x": 0, "y": 0})
            changes = [data for name, data in seen if name == "change"]
            counted = [data for name, data in seen if name == "counters" and data["events_accepted"] == 1]
            if len(changes) == 2 and counted:
                break
    assert seen[0][0] == "snapshot"
    assert (seen[0][1]["space"], seen[0][1]["title"]) == ("geographic", "domain local")
    assert changes[0] == {"layer": "flashes", "set": {"f": point(1, 2)}, "remove": []}
    assert changes[1] == {"layer": "flashes", "set": {}, "remove": ["f"]}


def test_watchers_are_counted(node: RunningNode) -> None:
    """A closed stream is forgotten."""
    with node.http.stream("GET", "/v1/scene/stream") as response:
        pieces = response.iter_bytes()
        next(pieces)
        assert "roamcast_scene_watchers 1.0" in node.http.get("/metrics").text
    until(lambda: "roamcast_scene_watchers 0.0" in node.http.get("/metrics").text, "the watcher to be forgotten")
