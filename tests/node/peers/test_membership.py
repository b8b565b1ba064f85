"""Membership, signatures and replays over real HTTP; and subscribers that did not ask to be moved."""

from __future__ import annotations

import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from backbone import backbone, invitation, knows, visitor
from forged_messages import introduce, peer_of, send_forged, send_signed, signed_headers
from nodes import RunningNode, running_node, until

from roamcast.client import Client
from roamcast.deliver.messages import ChunkReceipt, MailboxClaim
from roamcast.deliver.port import START
from roamcast.errors import AuthenticationError, InputError, PermissionDeniedError
from roamcast.node.peers.message_codec import encode
from roamcast.node.peers.sender import MESSAGES
from roamcast.security.move_proofs import MoveProofChain
from roamcast.security.signing import new_key

ANN = "north.node.ann"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[str, RunningNode]]:
    with backbone(tmp_path, "north", "south", "west") as nodes:
        yield nodes


def test_only_signed_requests_of_peers_are_accepted(nodes: dict[str, RunningNode]) -> None:
    """401 without a signature, with another key, and for an unknown office."""
    body = encode([])
    assert nodes["north"].http.post(MESSAGES, content=body).status_code == 401
    assert send_signed(nodes["north"], new_key(), "south", "north", body).status_code == 401
    assert send_signed(nodes["north"], new_key(), "east", "north", body).status_code == 401
    for path in ("/v1/office/vouch", "/v1/office/introductions"):
        assert nodes["north"].http.post(path, content=b"{}").status_code == 401


def test_the_body_is_the_one_that_was_signed(nodes: dict[str, RunningNode]) -> None:
    north, key = nodes["north"], peer_of(nodes["north"], "north", "south").secret
    session = send_signed(north, key, "south", "north", encode([])).headers["roamcast-session"]
    headers = signed_headers(key, "south", "north", encode([]), session)
    assert north.http.post(MESSAGES, content=b"{}", headers=headers).status_code == 401
    assert north.http.post(MESSAGES, content=encode([]), headers=headers).status_code == 200


def test_a_body_is_not_read_without_a_signature(nodes: dict[str, RunningNode]) -> None:
    """The response is there before the body is complete. A peer's body is read up to the limit."""
    north, key = nodes["north"], peer_of(nodes["north"], "north", "south").secret
    size = 1 << 40
    for headers, status in (
        (signed_headers(new_key(), "south", "north", b""), b"401"),
        (signed_headers(key, "south", "north", b""), b"413"),
    ):
        with socket.create_connection((north.http.base_url.host, north.http.base_url.port or 80), timeout=30) as peer:
            lines = [f"POST {MESSAGES} HTTP/1.1", "host: north", f"content-length: {size}"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            peer.sendall("\r\n".join((*lines, "", "")).encode())
            assert peer.recv(100).split()[1] == status


def test_a_malformed_signature_is_refused(nodes: dict[str, RunningNode]) -> None:
    """401."""
    headers = {"roamcast-office": "south", "roamcast-nonce": "1", "roamcast-signature": "é".encode("latin-1")}
    assert nodes["north"].http.post(MESSAGES, content=encode([]), headers=headers).status_code == 401


def test_a_signature_is_for_one_sender_and_one_receiver(nodes: dict[str, RunningNode]) -> None:
    key = peer_of(nodes["north"], "north", "south").secret
    assert send_signed(nodes["west"], key, "south", "north", encode([])).status_code == 401
    assert send_signed(nodes["north"], key, "west", "north", encode([])).status_code == 401


def test_a_request_cannot_be_replayed(tmp_path: Path) -> None:
    """Not after a restart either."""
    with backbone(tmp_path, "north", "south") as nodes:
        north = nodes["north"]
        key = peer_of(north, "north", "south").secret
        body = encode([])
        session = send_signed(north, key, "south", "north", body).headers["roamcast-session"]
        headers = signed_headers(key, "south", "north", body, session)
        assert [north.http.post(MESSAGES, content=body, headers=headers).status_code for _ in range(2)] == [200, 409]
    with running_node(tmp_path / "north", domain="north") as north:
        assert north.http.post(MESSAGES, content=body, headers=headers).status_code == 409


def test_keys_are_private(nodes: dict[str, RunningNode]) -> None:
    """Only their owner can read the file, and no path of the API returns them."""
    path = nodes["north"].data / "nodes" / "north" / "peers.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    shown = nodes["north"].http.get("/v1/offices").text
    assert all(peer["key"] not in shown for peer in orjson.loads(path.read_bytes())["peers"])


def test_each_pair_of_peers_shares_its_own_key(nodes: dict[str, RunningNode]) -> None:
    keys = {
        tuple(sorted((one, other))): {peer_of(nodes[one], one, other).key, peer_of(nodes[other], other, one).key}
        for one in nodes
        for other in nodes
        if one != other
    }
    assert all(len(both) == 1 for both in keys.values())
    assert len(set.union(*keys.values())) == 3


def test_an_introduction_does_not_replace_a_known_peer(nodes: dict[str, RunningNode]) -> None:
    """Neither its key nor its URL; only its introducer may."""
    for liar, to, known in (("west", "south", "north"), ("south", "north", "west"), ("south", "west", "north")):
        before = peer_of(nodes[to], to, known)
        assert introduce(nodes, liar, to, known, "http://127.0.0.1:1", new_key()) == 200
        assert peer_of(nodes[to], to, known) == before
    before = peer_of(nodes["west"], "west", "south")
    assert before.introducer == "north"
    secret = new_key()
    assert introduce(nodes, "north", "west", "south", nodes["south"].url, secret) == 200
    assert peer_of(nodes["west"], "west", "south").secret == secret


def test_an_invitation_is_for_one_domain_and_valid_once(tmp_path: Path) -> None:
    """With another domain, a forged code or a used one the node does not start."""
    with running_node(tmp_path / "north", domain="north") as north:
        code = invitation(north, "south")
        join = {"join": north.url, "invitation": code}
        with pytest.raises(PermissionDeniedError), running_node(tmp_path / "east", domain="east", **join):
            pass
        bad = {"join": north.url, "invitation": code[:-6] + "AAAAA="}
        with pytest.raises(PermissionDeniedError), running_node(tmp_path / "south", domain="south", **bad):
            pass
        with pytest.raises(InputError), running_node(tmp_path / "south", domain="south", join=north.url):
            pass
        with running_node(tmp_path / "south", domain="south", **join) as south:
            until(lambda: knows(north, "south") and knows(south, "north"), "both to know each other")
        with pytest.raises(PermissionDeniedError), running_node(tmp_path / "other", domain="south", **join):
            pass
        with running_node(tmp_path / "south", domain="south", **join) as south:  # started again as it was
            until(lambda: knows(south, "north"), "south to be back")


def test_only_the_operator_invites(nodes: dict[str, RunningNode]) -> None:
    """A subscriber's token is not enough. A node does not invite itself."""
    ann = nodes["north"].subscriber("ann")
    with pytest.raises(PermissionDeniedError):
        ann.invite("east")
    with pytest.raises(InputError):
        nodes["north"].operator().invite("north")


def test_a_peer_with_a_new_url_is_found_again(tmp_path: Path) -> None:
    """Its first request tells it."""
    with running_node(tmp_path / "north", domain="north") as north:
        join = {"join": north.url, "invitation": invitation(north, "south")}
        with running_node(tmp_path / "south", domain="south", **join) as south:
            until(lambda: knows(north, "south"), "south to have joined")
        with running_node(tmp_path / "south", domain="south", **join) as south:
            until(lambda: [it["url"] for it in north.operator().offices()] == [south.url], "the new address")
            ann = north.subscriber("ann")
            ann.migrate(south.url)


@pytest.mark.parametrize("domain", ["north", "south"])
def test_an_arrival_needs_the_subscribers_token(nodes: dict[str, RunningNode], domain: str) -> None:
    """At home or elsewhere: 403, and the mailbox stays."""
    ann = nodes["north"].subscriber("ann")
    with pytest.raises(PermissionDeniedError):
        visitor(nodes[domain], ANN, "made-up").pull()
    with pytest.raises(PermissionDeniedError):
        visitor(nodes[domain], "north.node.nobody", ann.token).pull()
    assert ann.pull() == []


def test_a_peer_cannot_claim_a_mailbox_without_proof(nodes: dict[str, RunningNode]) -> None:
    """Neither with a forged move proof nor with an old one, nor in the name of another office."""
    ann = nodes["north"].subscriber("ann")
    ann.migrate(nodes["west"].url)
    seen = str(MoveProofChain(ann.token or "").proof(ANN, 2))
    ann.migrate(nodes["north"].url)
    for claim in (
        MailboxClaim(ANN, 9, "west", ""),
        MailboxClaim(ANN, 9, "west", seen),
        MailboxClaim(ANN, 2, "west", seen),
        MailboxClaim(ANN, 9, "north", ""),
        MailboxClaim(ANN, 9, "south", str(MoveProofChain(ann.token or "").proof(ANN, 9))),
    ):
        assert send_forged(nodes, "west", "north", claim) == 200
    ann.send("ann", "still here")
    assert [letter.message for letter in ann.pull(wait=5)] == ["still here"]


def test_a_peer_cannot_claim_a_visitor_with_old_proofs(nodes: dict[str, RunningNode]) -> None:
    """Only the home may recall it without one."""
    ann = nodes["north"].subscriber("ann")
    for domain in ("west", "south"):
        ann.migrate(nodes[domain].url)
    seen = str(MoveProofChain(ann.token or "").proof(ANN, 2))
    send_forged(nodes, "west", "south", MailboxClaim(ANN, 9, "west", seen), MailboxClaim(ANN, 9, "west", ""))
    assert ann.pull() == []
    assert ann._calls.mailbox.url == nodes["south"].url


def test_a_mailbox_is_deleted_only_when_its_receiver_confirms(nodes: dict[str, RunningNode]) -> None:
    """Another office that confirms it is not believed."""
    ann = nodes["north"].subscriber("ann")
    ann.send("ann", "kept")
    assert send_forged(nodes, "west", "north", ChunkReceipt(ANN, 2, START, complete=True)) == 200
    assert len(ann.pull()) == 1


def test_requests_of_the_node_itself_are_not_office_messages(nodes: dict[str, RunningNode]) -> None:
    """Peers cannot deposit letters as the pipeline does."""
    body = orjson.dumps({"messages": [["Deposit", {"letters": []}]]})
    key = peer_of(nodes["north"], "north", "west").secret
    session = send_signed(nodes["north"], key, "west", "north", body).headers["roamcast-session"]
    assert send_signed(nodes["north"], key, "west", "north", body, session).status_code == 422


def test_arrivals_are_limited(tmp_path: Path) -> None:
    """429 for one too many from an address."""
    with running_node(tmp_path, domain="north", limits={"arrivals": 2}) as node:
        body = {"name": ANN, "epoch": 2, "move_proof": ""}
        codes = [node.http.post("/v1/arrivals", json=body).status_code for _ in range(20)]
        assert codes[:2] == [422, 422]
        assert codes.count(429) > 10


def test_the_size_of_a_letter_is_limited(tmp_path: Path) -> None:
    """422."""
    with running_node(tmp_path, domain="north", limits={"letter": 100}) as node:
        ann = node.subscriber("ann")
        with pytest.raises(InputError):
            ann.send("ann", "x" * 101)
        assert ann.send("ann", "short").number == 1


def test_a_replaced_mailbox_token_is_invalid(nodes: dict[str, RunningNode]) -> None:
    """Another arrival returns a new one."""
    ann = nodes["north"].subscriber("ann")
    ann.migrate(nodes["south"].url)
    old = ann.mailbox_token
    ann.migrate(nodes["south"].url)
    with pytest.raises(AuthenticationError):
        nodes["south"].client(old).pull()
    assert ann.pull() == []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=roamcast", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def test_nodes_and_clients_talk_over_tls(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """With the certificates they trust, and not without."""
    cert, key = certificate
    tls = {"tls_cert": cert, "tls_key": key, "ca": cert}
    with running_node(tmp_path / "north", domain="north", verify=cert, **tls) as north:
        assert north.url.startswith("https://")
        join = {"join": north.url, "invitation": invitation(north, "south")}
        with running_node(tmp_path / "south", domain="south", verify=cert, **tls, **join) as south:
            until(lambda: knows(north, "south") and knows(south, "north"), "both to know each other")
            with Client(north.url, ca=cert) as ann:
                ann.register_subscriber("ann")
                ann.migrate(south.url)
                assert ann.pull() == []
        with Client(north.url, delays=()) as stranger, pytest.raises(Exception, match="certificate"):
            stranger.health()


def test_a_stream_over_tls_ends_with_its_client(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """At once, even if the stream is silent."""
    cert, key = certificate
    with running_node(tmp_path, verify=cert, tls_cert=cert, tls_key=key) as node:
        heard: list[bool] = []
        with Client(node.url, ca=cert) as lamp:
            lamp.register_source("lamp")
            thread = lamp.on_demand(heard.append)
            until(lambda: heard == [False], "the source to be idle")
        thread.join(5.0)
        assert not thread.is_alive()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_node_that_listens_on_all_addresses_needs_a_public_url(tmp_path: Path, host: str) -> None:
    with pytest.raises(InputError, match="all addresses"), running_node(tmp_path, host=host):
        pass
