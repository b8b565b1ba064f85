"""Questions and answers between nodes: what no node would say is refused."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from backbones import source_request

from roamcast.bind.discovery.messages import (
    AnnouncementCursor,
    DiscoveryInterest,
    DiscoveryRequest,
    DiscoveryResponse,
    SourceAnnouncement,
    SourceRequest,
)
from roamcast.errors import InputError
from roamcast.model import Position
from roamcast.node.peers.discovery_codec import SourcesRequest, SourcesResponse, decode_request, decode_response, encode
from roamcast.space import PLANAR

INTEREST = DiscoveryInterest(frozenset([source_request("bind", "&context = noise")]), frozenset(["b"]))
REQUEST = SourcesRequest(DiscoveryRequest("north", 1, 2, INTEREST, AnnouncementCursor(3, 4)), 2.0, (1.0, 2.0))
CAM = SourceAnnouncement("cam", {"a": True, "b": 1.5, "c": "x"}, Position("cam", 1.0, 2.0, 5))
RESPONSE = SourcesResponse(
    DiscoveryResponse("north", 1, 2, 0, AnnouncementCursor(3, 4), (CAM, SourceAnnouncement("gone", None)), True), None
)


def test_what_was_said_is_heard() -> None:
    """Questions and answers come out as they went in."""
    assert decode_request(encode(REQUEST), PLANAR) == REQUEST
    assert decode_response(encode(RESPONSE), PLANAR) == RESPONSE


@pytest.mark.parametrize(
    "sent",
    [
        REQUEST._replace(wait=-1.0),
        REQUEST._replace(at=(1e300, 0.0)),
        REQUEST._replace(
            request=replace(REQUEST.request, interest=DiscoveryInterest(frozenset([SourceRequest("bind", "&&&")])))
        ),
        REQUEST._replace(
            request=replace(
                REQUEST.request,
                interest=DiscoveryInterest(frozenset(source_request("match", f"&a = {n}") for n in range(2_001))),
            )
        ),
    ],
    ids=["no time to wait", "nowhere", "no condition", "too much"],
)
def test_questions_that_no_node_asks_are_refused(sent: SourcesRequest) -> None:
    """Before they reach the control."""
    with pytest.raises(InputError):
        decode_request(encode(sent), PLANAR)


@pytest.mark.parametrize(
    "news",
    [
        replace(CAM, position=Position("cam", 1.0, 2.0, 10**18)),
        replace(CAM, position=Position("cam", 1e300, 2.0, 5)),
        replace(CAM, source="cam@south"),
        replace(CAM, attributes={str(n): 1.0 for n in range(1_001)}),
    ],
    ids=["no such year", "nowhere", "no id", "too much"],
)
def test_sources_that_could_not_be_registered_are_refused(news: SourceAnnouncement) -> None:
    """One answer must not stop a node for good."""
    with pytest.raises(InputError):
        decode_response(encode(RESPONSE._replace(response=replace(RESPONSE.response, announcements=(news,)))), PLANAR)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", orjson.dumps({"request": 1, "wait": 1, "at": None})])
def test_what_is_no_question_is_refused(body: bytes) -> None:
    """With a hint that versions may differ."""
    with pytest.raises(InputError) as refused:
        decode_request(body, PLANAR)
    assert "version" in str(refused.value.hint)
