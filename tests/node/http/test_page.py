"""The page in a real browser, at a real node."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from backbone import backbone
from nodes import RunningNode, beat, running_node, until
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
MARKUP = "<img src=x onerror='window.hacked = true'>"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

expect.set_options(timeout=15_000)

Visit = Callable[..., Page]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    """A node with a real server: a browser connects to it."""
    with running_node(tmp_path, scene=True) as node:
        yield node


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Opens the page of a node and waits until it is live; fails the test on errors of the page."""
    pages: list[Page] = []
    errors: list[object] = []

    def open_page(node: RunningNode, **options: Any) -> Page:
        page = browser.new_page(**options)
        page.on("pageerror", lambda error: errors.append(error))
        page.goto(node.url)
        expect(page.locator("#state")).to_have_text("live")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert errors == []


def point(x: float, y: float, label: str = "", kind: str = "thing") -> dict[str, Any]:
    return {"geometry": {"type": "Point", "coordinates": [x, y]}, "label": label, "kind": kind}


def layer(page: Page, name: str) -> Any:
    return page.locator("#layers li").filter(has=page.get_by_text(name, exact=True))


def count(page: Page, name: str) -> Any:
    return layer(page, name).locator(".count")


def counter(page: Page, name: str) -> Any:
    return page.locator("#counters > div").filter(has_text=name).locator(".total")


def test_layers_are_listed_with_their_counts(node: RunningNode, visit: Visit) -> None:
    """Layers set by the operator, whatever their names."""
    node.operator().update_scene("rescue_boats", set={str(i): point(i, i) for i in range(3)})
    expect(count(visit(node), "Rescue boats")).to_have_text("3")


def test_changes_arrive_while_the_page_is_open(node: RunningNode, visit: Visit) -> None:
    """Features that are set and removed appear and disappear."""
    page = visit(node)
    node.operator().update_scene("boats", set={"a": point(0, 0), "b": point(1, 1)})
    expect(count(page, "Boats")).to_have_text("2")
    node.operator().update_scene("boats", remove=["a"])
    expect(count(page, "Boats")).to_have_text("1")


def test_features_with_a_ttl_disappear(node: RunningNode, visit: Visit) -> None:
    page = visit(node)
    node.operator().update_scene("flashes", set={"a": point(0, 0)}, ttl=0.5)
    expect(count(page, "Flashes")).to_have_text("0")


def test_points_lines_and_areas_are_in_the_legend(node: RunningNode, visit: Visit) -> None:
    """Each kind has an entry, known to the page or not."""
    line = {"geometry": {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}, "kind": "tunnel"}
    ring = [[0, 0], [1, 0], [1, 1], [0, 0]]
    area = {"geometry": {"type": "Polygon", "coordinates": [ring]}, "kind": "subscription"}
    node.operator().update_scene("all", set={"p": point(0, 0, kind="drone"), "l": line, "a": area})
    expect(visit(node).locator("#legend li")).to_have_text(["Drone", "Tunnel", "Subscription"])


def test_unknown_kind_keeps_its_colour(node: RunningNode, visit: Visit) -> None:
    """The colour of an unknown kind depends only on its name."""
    operator = node.operator()
    operator.update_scene("one", set={"a": point(0, 0, kind="hovercraft")})
    swatch = "getComputedStyle(document.querySelector('#legend .swatch')).backgroundColor"
    first = visit(node)
    expect(first.locator("#legend li")).to_have_text(["Hovercraft"])
    operator.update_scene("two", set={"b": point(1, 1, kind="zeppelin")})
    second = visit(node)
    expect(second.locator("#legend li")).to_have_text(["Hovercraft", "Zeppelin"])
    assert first.evaluate(swatch) == second.evaluate(swatch)


def test_hidden_layer_is_not_in_the_legend(node: RunningNode, visit: Visit) -> None:
    """Unticking a layer hides its features."""
    node.operator().update_scene("boats", set={"a": point(0, 0, kind="boat")})
    page = visit(node)
    layer(page, "Boats").locator("input").uncheck()
    expect(page.locator("#legend li")).to_have_count(0)


def test_label_on_the_map_is_text(node: RunningNode, visit: Visit) -> None:
    """Markup in the label of a subscriber is shown as text."""
    node.subscriber("anna", attributes={"label": MARKUP}, x=0.0, y=0.0)
    page = visit(node)
    expect(page.locator(".name")).to_have_text(MARKUP)
    assert page.evaluate("window.hacked") is None


def test_label_in_a_tooltip_is_text(node: RunningNode, visit: Visit) -> None:
    """Markup in the label of any feature is shown as text."""
    ring = [[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]]
    area = {"geometry": {"type": "Polygon", "coordinates": [ring]}, "label": MARKUP, "kind": "zone"}
    node.operator().update_scene("zones", set={"z": area})
    page = visit(node)
    expect(page.locator("#legend li")).to_have_text(["Zone"])
    page.get_by_role("button", name="Show the whole scene").click()
    page.locator("#map").hover()
    expect(page.locator(".tip strong")).to_have_text(MARKUP)
    assert page.evaluate("window.hacked") is None


def test_tooltip_is_as_wide_as_its_label(node: RunningNode, visit: Visit) -> None:
    """A short label has one line."""
    node.operator().update_scene("boats", set={"a": point(0, 0, "Ferry to the lighthouse", "boat")})
    page = visit(node)
    expect(page.locator("#legend li")).to_have_text(["Boat"])
    page.locator("#map").hover()
    box = page.locator(".tip strong").bounding_box()
    assert box is not None
    assert box["width"] > 4 * box["height"]


def test_counters_update(node: RunningNode, visit: Visit) -> None:
    """Events accepted while the page is open are counted."""
    page = visit(node)
    source = node.source(x=0.0, y=0.0)
    source.publish([{"terms": ["fire"]}] * 7)
    expect(counter(page, "Events accepted")).to_have_text("7")


def test_view_is_fitted_to_the_scene(node: RunningNode, visit: Visit) -> None:
    """A subscriber anywhere on earth is in view."""
    node.subscriber("anna", x=151.2, y=-33.9)
    node.subscriber("ben", x=151.3, y=-33.8)
    page = visit(node)
    expect(page.locator(".name", has_text="anna")).to_be_in_viewport()
    expect(page.locator(".name", has_text="ben")).to_be_in_viewport()


def test_moving_subscriber_moves_on_the_map(node: RunningNode, visit: Visit) -> None:
    node.subscriber("ben", x=0.0, y=0.0)
    node.subscriber("carla", x=1.0, y=1.0)
    anna = node.subscriber("anna", x=0.1, y=0.5)
    page = visit(node)
    # Where a label stands between ben's, 0, and carla's, 1, once the view is fitted.
    page.add_script_tag(
        content="""
        const left = (name) => [...document.querySelectorAll(".name")]
            .find((label) => label.textContent === name)?.getBoundingClientRect().x;
        const share = (name) => (left(name) - left("ben")) / (left("carla") - left("ben"));
        const fitted = () => left("carla") - left("ben") > 200;
        """
    )
    page.wait_for_function("fitted() && share('anna') < 0.2")
    anna.move(0.9, 0.5)
    page.wait_for_function("fitted() && share('anna') > 0.8")


def test_page_reconnects_to_a_node_that_restarted(tmp_path: Path, visit: Visit) -> None:
    """It shows that the connection is lost, and is live again with the node."""
    with running_node(tmp_path, scene=True, title="First") as node:
        page = visit(node)
        node.stop()
        expect(page.locator("#state")).to_have_attribute("data-state", "broken")
        with running_node(tmp_path, scene=True, title="Second", port=int(node.url.rsplit(":", 1)[1])):
            expect(page.locator("#state")).to_have_text("live")
            expect(page.locator("#title")).to_have_text("Second")


def test_node_without_a_scene_says_so(tmp_path: Path, browser: Browser) -> None:
    """The page says how to enable the scene."""
    with running_node(tmp_path, scene=False) as node, browser.new_page() as page:
        page.goto(node.url)
        expect(page.locator("#state")).to_have_text(re.compile("--scene"))


def test_planar_scene_is_drawn(tmp_path: Path, visit: Visit) -> None:
    """Any coordinates in metres are in view."""
    with running_node(tmp_path, scene=True, space="planar") as node:
        node.subscriber("anna", x=120_000.0, y=-45_000.0)
        node.subscriber("ben", x=121_000.0, y=-44_000.0)
        page = visit(node)
        expect(page.locator(".name", has_text="anna")).to_be_in_viewport()
        expect(page.locator(".name", has_text="ben")).to_be_in_viewport()


def test_five_thousand_features_are_drawn(node: RunningNode, visit: Visit) -> None:
    """A large scene arrives whole, and continues to change."""
    features = {str(i): point(i % 100 / 100, i / 5000, kind=f"kind {i % 5}") for i in range(5000)}
    node.operator().update_scene("crowd", set=features)
    page = visit(node)
    expect(count(page, "Crowd")).to_have_text("5,000")
    node.operator().update_scene("crowd", set={str(i): point(0.5, 0.5) for i in range(2500)}, remove=["4999"])
    expect(count(page, "Crowd")).to_have_text("4,999")


def test_page_loads_nothing_from_other_hosts(node: RunningNode, browser: Browser) -> None:
    """It works offline."""
    with browser.new_page() as page:
        requested: list[str] = []
        page.on("request", lambda request: requested.append(request.url))
        page.goto(node.url)
        expect(page.locator("#state")).to_have_text("live")
    assert [url for url in requested if not url.startswith((node.url, "data:"))] == []


@pytest.mark.parametrize(("width", "below"), [(390, True), (1280, False)])
def test_panel_is_below_the_map_on_narrow_screens(node: RunningNode, visit: Visit, width: int, below: bool) -> None:
    """Beside the map on wide ones."""
    page = visit(node, viewport={"width": width, "height": 800})
    map_box, panel_box = page.locator("#map").bounding_box(), page.locator("#panel").bounding_box()
    assert map_box is not None
    assert panel_box is not None
    assert (panel_box["y"] >= map_box["y"] + map_box["height"]) is below


def test_a_banner_shows_what_is_wrong(node: RunningNode, visit: Visit) -> None:
    """While the node is degraded."""
    page = visit(node)
    banner = page.locator("#health")
    expect(banner).to_contain_text("No pipeline")
    expect(banner).to_contain_text("no pipeline has reported to this node")
    beat(node.data, dead_letters=3, dead_letters_since=1_000_000)
    expect(banner).to_contain_text("3 records could not be processed")
    expect(banner).not_to_contain_text("No pipeline")
    beat(node.data)
    expect(banner).to_be_hidden()


def test_subscriptions_that_miss_events_are_marked_while_they_do(tmp_path: Path, visit: Visit) -> None:
    """By colour and in words: on the map, in its tooltip, in the legend and in a list."""
    settings: dict[str, Any] = {"scene": True, "silence": 3.0, "pipeline_silence": 3600.0}
    with backbone(tmp_path, "north", "south", **settings) as nodes:
        north, south = nodes["north"], nodes["south"]
        for node in (north, south):
            beat(node.data)
        south.source("mic", x=8.0, y=53.0, attributes={"context": "noise"})
        ann = north.subscriber("ann", x=8.1, y=53.0)
        ann.subscribe(box=(7, 52, 9, 54), terms=["fire"], id="box")
        ann.subscribe("Select Where &context = noise and &location in nearest", id="near")
        until(lambda: {one.state for one in ann.subscriptions()} == {"active"}, "both to be active")
        page = visit(north)
        listed, marked = page.locator("#missing-list li"), page.locator(".name.missing")
        legend = page.locator("#legend li", has_text="Subscription")
        expect(legend).to_have_text(["Subscription"])
        expect(page.locator("#missing")).to_be_hidden()
        south.stop()
        expect(listed).to_have_count(2)
        for line, label, state in ((0, "ann: follows sources", "unreachable, receives nothing, since"),
                                   (1, "ann: fire", "partial, receives only part, since")):  # fmt: skip
            for text in (label, state, "south does not respond since"):
                expect(listed.nth(line)).to_contain_text(text)
        expect(marked).to_have_text(["⚠ ann: fire (partial)"])
        expect(legend).to_have_text(["Subscription, partial"])
        page.get_by_role("button", name="Show the whole scene").click()
        page.locator("#map").hover(position={"x": 60, "y": 60})
        page.locator("#map").hover()
        expect(page.locator(".tip")).to_contain_text("partial since")
        expect(page.locator(".tip")).to_contain_text("south does not respond since")
        port = int(south.url.rsplit(":", 1)[1])
        with running_node(tmp_path / "south", domain="south", port=port, **settings):
            expect(page.locator("#missing")).to_be_hidden()
            expect(marked).to_have_count(0)
            expect(legend).to_have_text(["Subscription"])
