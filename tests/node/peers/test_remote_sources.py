"""Sources that publish at nodes of other domains than their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from backbone import backbone
from nodes import RunningNode, journalled

from roamcast.client import Client
from roamcast.errors import InputError, NotFoundError
from roamcast.security.tokens import PublishProof

EVENT = {"x": 1.0, "y": 2.0, "terms": ["fire"]}
WHO = ("entity", "seq", "id", "body")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[str, RunningNode]]:
    with backbone(tmp_path, "north", "south", "west") as nodes:
        yield nodes


def posted(node: RunningNode, passport: object, **more: object) -> tuple[int, str | None]:
    """Status, and what the refusal points at, of one event by plain HTTP."""
    headers = {"authorization": f"Bearer {passport}"}
    answer = node.http.post("/v1/events", json={**EVENT, **more}, headers=headers)
    return answer.status_code, answer.json().get("error", {}).get("where")


def token_of(client: Client) -> str:
    assert client.token is not None
    return client.token


def test_copies_at_two_nodes_name_the_same_source(nodes: dict[str, RunningNode]) -> None:
    """Number, id and attributes are those of home; elsewhere the source is named with its domain."""
    cam = nodes["north"].source("cam", attributes={"kind": "camera"})
    for at in (None, "north", "south", "west"):
        assert cam.publish({**EVENT, "seq": 7}, at=at).last_seq == 7
    body = '{"kind":"camera"}'
    told = {d: [tuple(row[k] for k in WHO) for row in journalled(n.data, d)] for d, n in nodes.items()}
    assert told == {
        "north": [("cam", 7, "cam:7", body)] * 2,
        "south": [("cam@north", 7, "cam:7", body)],
        "west": [("cam@north", 7, "cam:7", body)],
    }


def test_numbers_come_from_home_wherever_an_event_goes(nodes: dict[str, RunningNode]) -> None:
    """What is published here and there without numbers never gets the same one twice."""
    cam = nodes["north"].source("cam")
    numbers = [cam.publish(EVENT, at=at).last_seq for at in ("south", None, "west", "south", None)]
    assert sorted(set(numbers)) == sorted(numbers)


def test_passport_is_for_one_domain(nodes: dict[str, RunningNode]) -> None:
    """What a node was shown opens nothing at another, nor at home."""
    token = token_of(nodes["north"].source("cam"))
    passport = PublishProof.create(token, "north", "cam", "south")
    assert posted(nodes["south"], passport, seq=1) == (202, None)
    assert posted(nodes["west"], passport, seq=1) == (401, "Authorization")
    assert posted(nodes["north"], passport, seq=1) == (401, "Authorization")


def test_only_sources_have_passports(nodes: dict[str, RunningNode]) -> None:
    """A subscriber's is refused, as is that of nobody, or of a domain that nobody knows."""
    token = token_of(nodes["north"].subscriber("ann"))
    for home, id in (("north", "ann"), ("north", "nobody"), ("east", "ann"), ("north", "..")):
        passport = PublishProof.create(token, home, id, "south")
        assert posted(nodes["south"], passport, seq=1)[0] == 401
    assert journalled(nodes["south"].data, "south") == []


def test_an_old_token_makes_no_passport(nodes: dict[str, RunningNode]) -> None:
    """Once there is another one."""
    cam = nodes["north"].source("cam")
    old = nodes["north"].client(cam.token)
    cam.renew_token()
    assert cam.publish(EVENT, at="south").accepted == 1
    stale = PublishProof.create(token_of(old), "north", "cam", "south")
    assert posted(nodes["south"], stale, seq=1) == (401, "Authorization")


@pytest.mark.parametrize(("event", "where"), [(EVENT, "seq"), ({"seq": 1}, "x")])
def test_events_from_elsewhere_bring_number_and_point(
    nodes: dict[str, RunningNode], event: dict[str, object], where: str
) -> None:
    """Only home knows the next number, and where the source is."""
    token = token_of(nodes["north"].source("cam", x=1, y=1))
    headers = {"authorization": f"Bearer {PublishProof.create(token, 'north', 'cam', 'south')}"}
    answer = nodes["south"].http.post("/v1/events", json=event, headers=headers)
    assert (answer.status_code, answer.json()["error"]["where"]) == (422, where)


def test_a_home_that_is_away_cannot_vouch(nodes: dict[str, RunningNode]) -> None:
    """Who was vouched for lately still is; others have to come again."""
    south, west = nodes["south"], nodes["west"]
    known, unknown = (
        PublishProof.create(token_of(west.source(id)), "west", id, "south") for id in ("known", "unknown")
    )
    assert posted(south, known, seq=1)[0] == 202
    west.stop()
    assert posted(south, known, seq=2)[0] == 202
    assert posted(south, unknown, seq=2)[0] == 503
    assert [row["entity"] for row in journalled(south.data, "south")] == ["known@west"] * 2


def test_a_domain_that_has_not_joined_is_named(nodes: dict[str, RunningNode]) -> None:
    """Nothing is sent anywhere."""
    with pytest.raises(NotFoundError, match="'east'"):
        nodes["north"].source("cam").publish(EVENT, at="east")


def test_publishing_away_needs_a_token(nodes: dict[str, RunningNode]) -> None:
    """As it does at home."""
    with pytest.raises(InputError, match="token"):
        nodes["north"].client().publish({**EVENT, "seq": 1}, at="south")


def test_a_home_is_asked_again_after_a_minute(nodes: dict[str, RunningNode], monkeypatch: pytest.MonkeyPatch) -> None:
    """So long, and no longer, a passport is good though the token it was made from is not."""
    cam = nodes["north"].source("cam")
    passport = PublishProof.create(token_of(cam), "north", "cam", "south")
    assert posted(nodes["south"], passport, seq=1)[0] == 202
    cam.renew_token()
    assert posted(nodes["south"], passport, seq=2)[0] == 202
    monkeypatch.setattr("roamcast.node.peers.remote_sources._VALID_FOR", 0.0)
    known = PublishProof.create(token_of(cam), "north", "cam", "south")
    assert posted(nodes["south"], known, seq=3)[0] == 202
    cam.renew_token()
    assert posted(nodes["south"], known, seq=4)[0] == 401
