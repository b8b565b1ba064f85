"""Why an event matches a subscription or not, check by check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodes import RunningNode, bearer, in_process_node, until

from roamcast.client import Client
from roamcast.deliver.outbox import Outbox, PipelineStatus
from roamcast.errors import InputError, NotFoundError, PermissionDeniedError

ROOMS = (
    '{"type": "FeatureCollection", "features": [{"type": "Feature", "properties": {"name": "stage"}, "geometry": '
    '{"type": "Polygon", "coordinates": [[[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]]]}}]}'
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    places = tmp_path_factory.mktemp("places") / "rooms.geojson"
    places.write_text(ROOMS)
    with in_process_node(tmp_path_factory.mktemp("data"), space="planar", places=places) as node:
        node.source("lamp", attributes={"context": "level", "kind": "lamp"}, x=3, y=4)
        yield node


@pytest.fixture(scope="module")
def anna(shared: RunningNode) -> Client:
    return shared.subscriber("anna", x=0, y=0)


@pytest.fixture(scope="module")
def victim(shared: RunningNode) -> Client:
    return shared.subscriber("victim", x=3, y=3, attributes={"role": "guard", "context": "pulse"})


def checks(found: dict[str, Any]) -> dict[str, tuple[bool | None, str]]:
    return {check["check"]: (check["holds"], check["why"]) for check in found["checks"]}


EVENT = {"source": "lamp", "x": 3, "y": 4, "terms": ["fire"], "readings": {"level": 2}}
MATCH = {
    "a box": ("&location in box(0, 0, 5, 5)", "region", True, "(3, 4) is in box(0, 0, 5, 5)"),
    "outside a box": ("&location in box(0, 0, 2, 5)", "region", False, "(3, 4) is not in box(0, 0, 2, 5)"),
    "a circle": ("&location in circle(0, 0, 5)", "region", True, "5 m from (0, 0)"),
    "outside a circle": ("&location in circle(0, 0, 4.99)", "region", False, "5 m from (0, 0), not within 4.99 m"),
    "a place": ("&location in within(stage)", "region", True, '(3, 4) is in "stage"'),
    "around the subscriber": ("&location in rang:loc(6)", "region", True, "5 m from anna, at (0, 0)"),
    "not around the subscriber": (
        "&location in rang:loc(4)", "region", False, "5 m from anna, at (0, 0), not within 4 m",
    ),
    "terms": ("&terms has (fire)", "terms", True, 'the event has "fire"'),
    "missing terms": ("&terms has (ice, fire, snow)", "terms", False, 'the event lacks "ice" and "snow"'),
    "a condition": ("&terms has (fire) and &kind = lamp", "condition", True, "&kind = lamp holds for lamp"),
    "a condition that fails": (
        "&terms has (fire) and &kind = bus", "condition", False, "&kind = bus does not hold for lamp",
    ),
    "no such term": (
        "&terms has (fire) and not &terms has (fire)", "condition", False,
        'not &terms has ("fire") does not hold for lamp',
    ),
    "readings": ("&terms has (fire) On @ > 1", "on", True, "@ > 1 holds: level is 2"),
    "readings that fail": ("&terms has (fire) On @ > 2", "on", False, "@ > 2 does not hold: level is 2"),
    "a period": (
        "&terms has (fire) Every 10 s", "every", None,
        "events less than 10 s after the last letter are dropped",
    ),
    "life-control": (
        "&terms has (fire) Life-control #role = guard", "active", False, "stop: #role = guard does not hold for anna",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MATCH)
def test_each_check_gives_a_reason(anna: Client, case: str) -> None:
    """Whether it holds or not."""
    where, name, holds, why = MATCH[case]
    id = anna.subscribe(f"Select all() Where {where}")
    found = anna.explain_match(id, EVENT)
    assert checks(found)[name] == (holds, why)
    failed = [check for check in found["checks"] if check["holds"] is False and check["check"] != "state"]
    assert [check["check"] for check in failed] == ([name] if holds is False else [])


@pytest.mark.parametrize("source", ["ghost", "ghost@south", None])
def test_conditions_on_an_unknown_source_are_undecided(anna: Client, source: str | None) -> None:
    """It is said that a source is not registered here; that of another node may be registered there."""
    id = anna.subscribe("Select all() Where &terms has (fire) and not &terms has (ice) and &kind = lamp On @ > 1")
    found = anna.explain_match(id, {"source": source, "terms": ["fire"], "readings": {"level": 2}})
    name = source or "an unnamed source"
    unknown = f"the attributes of {name} are not known here"
    assert [(check["holds"], check["why"]) for check in found["checks"] if check["check"] == "condition"] == [
        (True, f'not &terms has ("ice") holds for {name}'),
        (None, f"&kind = lamp: {unknown}"),
    ]
    assert checks(found)["on"] == (None, f"@ > 1: {unknown}")
    expected = (False, "no source ghost is registered here") if source == "ghost" else None
    assert checks(found).get("source") == expected


BOX = "Select all() Where &location in box(0, 0, 5, 5)"
NO_POINT = (None, "the event has no point: give its x and y")


def test_an_event_without_a_point_cannot_be_decided(shared: RunningNode, anna: Client) -> None:
    """Except for the operator, if its source has a position."""
    id = anna.subscribe(BOX)
    shared.source("hidden")
    for caller in (anna, shared.operator()):
        assert checks(caller.explain_match(id, {}))["region"] == NO_POINT
        assert checks(caller.explain_match(id, {"source": "hidden"}))["region"] == NO_POINT
    found = shared.operator().explain_match(id, {"source": "lamp"})
    assert checks(found)["region"] == (True, "(3, 4) is in box(0, 0, 5, 5)")


@pytest.mark.parametrize(
    "region", ["box(0, 0, 5, 5)", "circle(0, 0, 4)", "circle(0, 0, 9)", "within(stage)", "rang:loc(9)"]
)
def test_a_subscriber_does_not_learn_where_others_are(anna: Client, victim: Client, region: str) -> None:
    """Neither coordinates nor distances nor yes or no: the answer is the same for an entity that does not exist."""
    id = anna.subscribe(f"Select all() Where &location in {region}")
    lamp, victim, nobody = (checks(anna.explain_match(id, {"source": name})) for name in ("lamp", "victim", "nobody"))
    assert lamp["region"] == NO_POINT
    assert victim.pop("source") == (False, "no source victim is registered here")
    assert nobody.pop("source") == (False, "no source nobody is registered here")
    assert lamp == victim == nobody


def test_attributes_of_subscribers_are_not_tested(shared: RunningNode, anna: Client, victim: Client) -> None:
    """A subscriber looks like an unknown source, also to the condition on readings."""
    id = anna.subscribe("Select all() Where &terms has (fire) and &role = guard On @ > 1")
    found = [
        checks(anna.explain_match(id, {"source": name, "terms": ["fire"], "readings": {"pulse": 5}}))
        for name in ("victim", "nobody")
    ]
    for name, found_checks in zip(("victim", "nobody"), found, strict=True):
        unknown = f"the attributes of {name} are not known here"
        assert found_checks["condition"] == (None, f"&role = guard: {unknown}")
        assert found_checks["on"] == (None, f"@ > 1: {unknown}")


def test_bindings_are_checked_at_the_events_time(shared: RunningNode) -> None:
    """Bound now, before and never. The reason names what is bound instead."""
    bob = shared.subscriber("bob", x=100, y=0)
    shared.source("near", x=101, y=0, attributes={"context": "noise"})
    shared.source("far", x=300, y=0, attributes={"context": "noise"})
    bob.subscribe("Select Where &context = noise and &location in nearest On @ > 1", id="bobs")
    found = bob.explain_match("bobs", {"source": "near", "readings": {"noise": 5}})
    since = bob.bindings("bobs")[0].bound_at
    assert checks(found)["bound"] == (True, f"near has been bound since {since}")
    assert checks(found)["on"] == (True, "@ > 1 holds: noise is 5")
    past = bob.explain_match("bobs", {"source": "near", "time": 1_000_000})
    assert checks(past)["bound"] == (False, f"near was not bound at 1970-01-12T13:46:40Z; it was from {since}")
    assert checks(past)["on"] == (False, "@ > 1 does not hold: the event has no readings")
    never = checks(bob.explain_match("bobs", {"source": "far"}))
    assert never["bound"] == (False, "far is not bound; bound now: near")
    assert never["condition"] == (True, "&context = noise holds for far")
    assert never["active"][0] is True


def test_the_pipelines_progress_is_compared_with_the_journal(tmp_path: Path) -> None:
    """No pipeline, a new one, one that is behind. There is nothing to say of one that has read everything."""
    with in_process_node(tmp_path) as node:
        anna, outbox = node.subscriber("anna"), Outbox(tmp_path / "outbox")
        anna.subscribe(terms=["fire"], id="q")

        def state_check(sender: PipelineStatus) -> tuple[bool | None, str] | None:
            outbox.write_status(sender)
            until(lambda: node.service.outbox_reader.pipeline_status == sender, "the node to meet the pipeline")
            return checks(anna.explain_match("q", {"terms": ["fire"]})).get("state")

        first = anna.explain_match("q", {"terms": ["fire"]})
        assert (first["matches"], checks(first)["state"]) == (
            False,
            (False, "no pipeline has reported to this node yet"),
        )
        for read in (0, 1):
            behind = state_check(PipelineStatus("p", read, {}, read_offsets={"local": read}))
            assert behind == (True, f"the pipeline has read {read} of 2 records of this node so far")
            assert anna.explain_match("q", {"terms": ["fire"]})["matches"] is True
            assert anna.explain_match("q", {"terms": ["ice"]})["matches"] is False
        assert state_check(PipelineStatus("p", 2, {}, read_offsets={"local": 2})) is None
        assert anna.explain_match("q", {"terms": ["fire"]})["matches"] is True


def test_only_owner_and_operator_may_explain(shared: RunningNode, anna: Client) -> None:
    """For an existing subscription and a valid event."""
    id = anna.subscribe(terms=["fire"])
    assert shared.operator().explain_match(id, EVENT)["subscription"] == id
    with pytest.raises(PermissionDeniedError):
        shared.subscriber("eve").explain_match(id, EVENT)
    with pytest.raises(NotFoundError):
        anna.explain_match("nothing", EVENT)
    with pytest.raises(InputError):
        anna.explain_match(id, {"x": 1e300, "y": 0})
    answer = shared.http.post(f"/v1/subscriptions/{id}/explain", content=b"[]", headers=bearer(anna))
    assert answer.status_code in (400, 422)
