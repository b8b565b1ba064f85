"""Discovery messages between nodes: invalid ones are refused."""

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


def test_messages_round_trip() -> None:
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
def test_invalid_requests_are_refused(sent: SourcesRequest) -> None:
    """Before they reach the control writer."""
    with pytest.raises(InputError):
        decode_request(encode(sent), PLANAR)


@pytest.mark.parametrize(
    "announcement",
    [
        replace(CAM, position=Position("cam", 1.0, 2.0, 10**18)),
        replace(CAM, position=Position("cam", 1e300, 2.0, 5)),
        replace(CAM, source="cam@south"),
        replace(CAM, attributes={str(n): 1.0 for n in range(1_001)}),
    ],
    ids=["no such year", "nowhere", "no id", "too much"],
)
def test_invalid_sources_are_refused(announcement: SourceAnnouncement) -> None:
    """A response must not stop a node for good."""
    response = replace(RESPONSE.response, announcements=(announcement,))
    with pytest.raises(InputError):
        decode_response(encode(RESPONSE._replace(response=response)), PLANAR)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", orjson.dumps({"request": 1, "wait": 1, "at": None})])
def test_other_bodies_are_refused(body: bytes) -> None:
    """With a hint that versions may differ."""
    with pytest.raises(InputError) as refused:
        decode_request(body, PLANAR)
    assert "version" in str(refused.value.hint)
