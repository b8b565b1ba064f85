"""Sources that publish at nodes of other domains."""

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
    with backbone(tmp_path, "north", "south", "west", shared=True) as nodes:
        yield nodes


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[dict[str, RunningNode]]:
    """Each with a data folder of its own."""
    with backbone(tmp_path, "north", "south") as nodes:
        yield nodes


def posted(node: RunningNode, proof: object, **more: object) -> tuple[int, str | None]:
    """Publish one event over plain HTTP; the status, and the location of the error."""
    headers = {"authorization": f"Bearer {proof}"}
    answer = node.http.post("/v1/events", json={**EVENT, **more}, headers=headers)
    return answer.status_code, answer.json().get("error", {}).get("where")


def token_of(client: Client) -> str:
    assert client.token is not None
    return client.token


def test_events_published_at_several_nodes_have_the_same_identity(nodes: dict[str, RunningNode]) -> None:
    """Number, id and attributes are those of the home; elsewhere the source is named with its domain."""
    cam = nodes["north"].source("cam", attributes={"kind": "camera"})
    for at in (None, "north", "south", "west"):
        assert cam.publish({**EVENT, "seq": 7}, domain=at).last_seq == 7
    body = '{"kind":"camera"}'
    records = {d: [tuple(row[k] for k in WHO) for row in journalled(n.data, d)] for d, n in nodes.items()}
    assert records == {
        "north": [("cam", 7, "cam:7", body)] * 2,
        "south": [("cam@north", 7, "cam:7", body)],
        "west": [("cam@north", 7, "cam:7", body)],
    }


def test_sequence_numbers_come_from_the_home(nodes: dict[str, RunningNode]) -> None:
    """Events published at several nodes without numbers never share one."""
    cam = nodes["north"].source("cam")
    numbers = [cam.publish(EVENT, domain=at).last_seq for at in ("south", None, "west", "south", None)]
    assert sorted(set(numbers)) == sorted(numbers)


def test_a_publish_proof_is_for_one_domain(nodes: dict[str, RunningNode]) -> None:
    """It is invalid at other nodes and at home."""
    token = token_of(nodes["north"].source("cam"))
    proof = PublishProof.create(token, "north", "cam", "south")
    assert posted(nodes["south"], proof, seq=1) == (202, None)
    assert posted(nodes["west"], proof, seq=1) == (401, "Authorization")
    assert posted(nodes["north"], proof, seq=1) == (401, "Authorization")


def test_only_known_sources_have_publish_proofs(nodes: dict[str, RunningNode]) -> None:
    """Subscribers, unknown ids and unknown domains are refused."""
    token = token_of(nodes["north"].subscriber("ann"))
    for home, id in (("north", "ann"), ("north", "nobody"), ("east", "ann"), ("north", "..")):
        proof = PublishProof.create(token, home, id, "south")
        assert posted(nodes["south"], proof, seq=1)[0] == 401
    assert journalled(nodes["south"].data, "south") == []


def test_a_publish_proof_of_an_old_token_is_refused(nodes: dict[str, RunningNode]) -> None:
    cam = nodes["north"].source("cam")
    old = nodes["north"].client(cam.token)
    cam.renew_token()
    assert cam.publish(EVENT, domain="south").accepted == 1
    stale = PublishProof.create(token_of(old), "north", "cam", "south")
    assert posted(nodes["south"], stale, seq=1) == (401, "Authorization")


@pytest.mark.parametrize(("event", "where"), [(EVENT, "seq"), ({"seq": 1}, "x")])
def test_events_of_remote_sources_need_number_and_position(
    nodes: dict[str, RunningNode], event: dict[str, object], where: str
) -> None:
    """Only the home knows them."""
    token = token_of(nodes["north"].source("cam", x=1, y=1))
    headers = {"authorization": f"Bearer {PublishProof.create(token, 'north', 'cam', 'south')}"}
    answer = nodes["south"].http.post("/v1/events", json=event, headers=headers)
    assert (answer.status_code, answer.json()["error"]["where"]) == (422, where)


def test_a_new_proof_needs_the_home_to_answer(nodes: dict[str, RunningNode]) -> None:
    """One that was verified lately is accepted."""
    south, west = nodes["south"], nodes["west"]
    known, unknown = (
        PublishProof.create(token_of(west.source(id)), "west", id, "south") for id in ("known", "unknown")
    )
    assert posted(south, known, seq=1)[0] == 202
    west.stop()
    assert posted(south, known, seq=2)[0] == 202
    assert posted(south, unknown, seq=2)[0] == 503
    assert [row["entity"] for row in journalled(south.data, "south")] == ["known@west"] * 2


def test_publishing_at_an_unknown_domain_fails(nodes: dict[str, RunningNode]) -> None:
    """Nothing is sent."""
    with pytest.raises(NotFoundError, match="'east'"):
        nodes["north"].source("cam").publish(EVENT, domain="east")


def test_publishing_at_another_domain_needs_a_token(nodes: dict[str, RunningNode]) -> None:
    with pytest.raises(InputError, match="token"):
        nodes["north"].client().publish({**EVENT, "seq": 1}, domain="south")


def test_a_proof_is_verified_again_after_a_minute(
    nodes: dict[str, RunningNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then, a proof of an old token is accepted."""
    cam = nodes["north"].source("cam")
    proof = PublishProof.create(token_of(cam), "north", "cam", "south")
    assert posted(nodes["south"], proof, seq=1)[0] == 202
    cam.renew_token()
    assert posted(nodes["south"], proof, seq=2)[0] == 202
    monkeypatch.setattr("roamcast.node.peers.remote_sources._VALID_FOR", 0.0)
    known = PublishProof.create(token_of(cam), "north", "cam", "south")
    assert posted(nodes["south"], known, seq=3)[0] == 202
    cam.renew_token()
    assert posted(nodes["south"], known, seq=4)[0] == 401


def test_events_are_passed_on_to_a_home_with_its_own_folder(hosts: dict[str, RunningNode]) -> None:
    """They are journalled there, with the attributes of the source, before the response."""
    cam = hosts["north"].source("cam", attributes={"kind": "camera"})
    assert (
        cam.publish([{**EVENT, "seq": 7}, {**EVENT, "seq": 8, "readings": {"smoke": 2.5}}], domain="south").accepted
        == 2
    )
    assert journalled(hosts["south"].data, "south") == []
    rows = journalled(hosts["north"].data, "north")
    assert [tuple(row[name] for name in WHO) for row in rows] == [
        ("cam", seq, f"cam:{seq}", '{"kind":"camera"}') for seq in (7, 8)
    ]
    assert rows[1]["readings"] == [("smoke", 2.5)]


def test_nothing_is_accepted_while_a_home_with_its_own_folder_is_away(hosts: dict[str, RunningNode]) -> None:
    """And an old proof is refused at once."""
    cam = hosts["north"].source("cam")
    proof = PublishProof.create(token_of(cam), "north", "cam", "south")
    assert posted(hosts["south"], proof, seq=1)[0] == 202
    cam.renew_token()
    assert posted(hosts["south"], proof, seq=2)[0] == 401
    proof = PublishProof.create(token_of(cam), "north", "cam", "south")
    assert posted(hosts["south"], proof, seq=2)[0] == 202
    hosts["north"].stop()
    assert posted(hosts["south"], proof, seq=3)[0] == 503
    assert journalled(hosts["south"].data, "south") == []
