"""Requests and messages that an attacker among the peers could forge."""

from __future__ import annotations

import httpx
import orjson
from nodes import RunningNode

from roamcast.deliver.messages import PeerMessage
from roamcast.node.peers.membership import INTRODUCTION
from roamcast.node.peers.message_codec import encode
from roamcast.node.peers.peer_file import Peer, Peers
from roamcast.node.peers.sender import MESSAGES
from roamcast.security.signing import Nonces, SignedRequest, body_digest, encrypt, new_key, signature


def peer_of(node: RunningNode, domain: str, other: str) -> Peer:
    """What a node knows of a peer, including the key: what an attacker among the peers has."""
    peer = Peers(node.data / "nodes" / domain / "peers.json").find(other)
    assert peer is not None
    return peer


def send_signed(
    node: RunningNode, key: bytes, sender: str, to: str, body: bytes, session: str = "", path: str = MESSAGES
) -> httpx.Response:
    """Send a signed request, as an office does."""
    headers = signed_headers(key, sender, to, body, session, path)
    return node.http.post(path, content=body, headers=headers)


def signed_headers(
    key: bytes, sender: str, to: str, body: bytes, session: str = "", path: str = MESSAGES
) -> dict[str, str]:
    """The headers of a request that can be sent once."""
    nonce, digest = Nonces().next_for(session), body_digest(body)
    code = signature(key, SignedRequest(sender, to, "", "POST", path, digest, nonce))
    return {
        "roamcast-office": sender,
        "roamcast-nonce": nonce,
        "roamcast-digest": digest,
        "roamcast-signature": code,
    }


def introduce(nodes: dict[str, RunningNode], sender: str, to: str, domain: str, url: str, secret: bytes) -> int:
    """Introduce another office at `url`, with this key; the status of the response."""
    key, nonce = peer_of(nodes[to], to, sender).secret, new_key().hex()
    body = orjson.dumps({"domain": domain, "url": url, "nonce": nonce, "key": encrypt(key, secret, nonce).hex()})
    session = send_signed(nodes[to], key, sender, to, encode([])).headers["roamcast-session"]
    return send_signed(nodes[to], key, sender, to, body, session, INTRODUCTION).status_code


def send_forged(nodes: dict[str, RunningNode], sender: str, to: str, *messages: PeerMessage) -> int:
    """Send forged messages of a peer; the status of the response."""
    key = peer_of(nodes[to], to, sender).secret
    session = send_signed(nodes[to], key, sender, to, encode(messages)).headers["roamcast-session"]
    return send_signed(nodes[to], key, sender, to, encode(messages), session).status_code


def replay(
    node: RunningNode, name: str, epoch: int, move_proof: str, secret: str = "another, made up"
) -> httpx.Response:
    """Arrive with somebody else's move proof."""
    return node.http.post(
        "/v1/arrivals", json={"name": name, "epoch": epoch, "move_proof": move_proof, "secret": secret}
    )
