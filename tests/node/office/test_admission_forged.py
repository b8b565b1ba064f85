"""Forged messages of an office that has joined, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import pytest
from backbone import backbone, leave_event, visitor
from forged_messages import replay, send_forged
from nodes import RunningNode, letter_body, running_node, until

from roamcast.client import Client
from roamcast.deliver.messages import (
    AddressUpdate,
    AddressUpdateReceipt,
    BundleReceipt,
    ChunkReceipt,
    LetterBundle,
    LocationQuery,
    LocationReply,
    MailboxChunk,
    MailboxClaim,
    PeerMessage,
    TraceQuery,
)
from roamcast.deliver.port import NO_OFFICE, START, Bookkeeping, FiledLetter, LetterKey, Mailbox
from roamcast.deliver.requests import LetterState, TraceLetter, TraceReply
from roamcast.errors import ElsewhereError, PermissionDeniedError, UnavailableError
from roamcast.model import Letter
from roamcast.ranges import Ranges
from roamcast.security.move_proofs import MoveProofChain

ANN, BEN, CLEO = "north.node.ann", "north.node.ben", "south.node.cleo"
FAR = 10**15

FORGED: tuple[PeerMessage, ...] = (
    LetterBundle(ANN, (), "south", FAR),
    BundleReceipt(CLEO, (LetterKey(BEN, 1),), (), "west", 0, False),
    BundleReceipt(ANN, (), (), "west", FAR, True),
    BundleReceipt(CLEO, (LetterKey(BEN, 1),), (), "south", 7, True),
    BundleReceipt(CLEO, (LetterKey(BEN, 1),), (), "west", 7, False),
    BundleReceipt(CLEO, (LetterKey(BEN, 1),), (), "west", 7, False, "0" * 64),
    LocationQuery(ANN, "south"),
    LocationReply(CLEO, NO_OFFICE, FAR),
    LocationReply(CLEO, "west", 9),
    LocationReply(ANN, NO_OFFICE, FAR),
    LocationReply(ANN, "west", FAR),
    MailboxClaim(ANN, FAR, "west", ""),
    MailboxClaim(ANN, 9, "west", "recall"),
    MailboxClaim(ANN, 9, "west", str(MoveProofChain("made up").proof(ANN, 9))),
    MailboxChunk(ANN, 9, "west", START, (), True, Bookkeeping()),
    MailboxChunk(ANN, 9, "south", START, (), True, Bookkeeping()),
    ChunkReceipt(ANN, 2, START, True),
    AddressUpdate(ANN, "west", 9, False),
    AddressUpdate(ANN, "west", FAR, True),
    AddressUpdate(ANN, "west", 2**60, True),
    AddressUpdate(ANN, "west", 9, True, str(MoveProofChain("made up").proof(ANN, 9))),
    AddressUpdate(CLEO, "south", FAR, True),
    AddressUpdateReceipt(ANN, 2, "south", True),
    TraceQuery(TraceLetter("ticket", ANN, BEN, 1), "south", FAR),
    TraceReply("ticket", LetterState.ACKNOWLEDGED, "south"),
)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[str, RunningNode]]:
    with backbone(tmp_path, "north", "south", "west") as nodes:
        yield nodes


def test_every_kind_of_message_is_forged() -> None:
    assert {type(message) for message in FORGED} == set(get_args(PeerMessage))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, RunningNode], Client, Client]]:
    """Ann, of north, is at south; then south is down, with a letter from ben queued for it."""
    with backbone(tmp_path_factory.mktemp("lies"), "north", "south", "west") as nodes:
        ann, ben = nodes["north"].subscriber("ann"), nodes["north"].subscriber("ben")
        nodes["south"].subscriber("cleo")
        ann.migrate(nodes["south"].url)
        until(lambda: where(nodes["north"], ann) == ("south", 2), "the home to hear of it")
        nodes["south"].stop()
        ben.send(CLEO, "precious")
        yield nodes, ann, ben


def where(home: RunningNode, client: Client) -> tuple[str, int]:
    error = home.http.get("/v1/mailbox", headers={"authorization": f"Bearer {client.token}"}).json().get("error", {})
    return error.get("office"), error.get("epoch")


@pytest.mark.parametrize("message", FORGED, ids=lambda message: f"{type(message).__name__}-{FORGED.index(message)}")
def test_a_forged_message_changes_nothing(
    world: tuple[dict[str, RunningNode], Client, Client], message: PeerMessage
) -> None:
    """The home knows where its subscriber is, and the letter stays queued."""
    nodes, ann, ben = world
    assert send_forged(nodes, "west", "north", message) == 200
    assert where(nodes["north"], ann) == ("south", 2)
    assert ben.trace(CLEO, 1).state == "queued"


def test_a_subscriber_still_moves_after_forged_messages(nodes: dict[str, RunningNode]) -> None:
    """It migrates, and fetches its mailbox home."""
    ann = nodes["north"].subscriber("ann")
    ann.migrate(nodes["south"].url)
    for message in FORGED:
        send_forged(nodes, "west", "north", message)
        send_forged(nodes, "west", "south", message)
    assert ann.pull() == []
    ann.migrate(nodes["west"].url)
    ann.migrate(nodes["north"].url)
    ann.send("ann", "here")
    assert [letter.message for letter in ann.pull(wait=5)] == ["here"]


MADE_UP = Letter(ANN, BEN, 1, '{"message": "made up"}')


@pytest.mark.parametrize(
    "message",
    [
        AddressUpdate(ANN, "west", FAR, True),
        BundleReceipt(ANN, (), (), "west", FAR, True),
        MailboxChunk(ANN, 2, "west", START, (FiledLetter(MADE_UP, 1),), True, Bookkeeping(Mailbox(2))),
        LocationReply(ANN, "west", FAR),
        ChunkReceipt(ANN, 2, START, True),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_forged_message_does_not_stop_a_migration(nodes: dict[str, RunningNode], message: PeerMessage) -> None:
    """Both offices get it while the mailbox is on its way; the mailbox arrives complete."""
    ann, ben = nodes["north"].subscriber("ann"), nodes["north"].subscriber("ben")
    ben.send(ANN, "precious")
    north = nodes["north"].service.office
    carried, held = north.sender.send, threading.Event()

    def hold(to: str, message: PeerMessage) -> None:
        if isinstance(message, MailboxChunk):
            held.set()
        else:
            carried(to, message)

    north.sender.send = hold
    with ThreadPoolExecutor(1) as thread:
        moving = thread.submit(ann.migrate, nodes["south"].url)
        assert held.wait(10)
        for domain in ("south", "north"):
            assert send_forged(nodes, "west", domain, message) == 200
        north.sender.send = carried
        moving.result(30)
    assert [letter.message for letter in ann.pull(wait=5)] == ["precious"]


def ids_of(client: Client) -> list[str]:
    """Of the events of all letters, read or not."""
    return [letter.event["id"] for letter in client.pull()]


def test_a_peer_cannot_post_in_the_name_of_the_pipeline(nodes: dict[str, RunningNode]) -> None:
    """Neither at home nor where the subscriber is. The numbers stay free: the pipeline's own letters arrive."""
    ann = nodes["north"].subscriber("ann")
    leave_event(nodes["north"], "north", 1, "ann", 1)
    for batch, at in ((2, "north"), (3, "south"), (4, "north")):
        ann.migrate(nodes[at].url)
        until(lambda at=at: at == "north" or where(nodes["north"], ann)[0] == at, "the home to hear of it")
        made_up = Letter(ANN, "the-pipeline", batch, json.dumps(letter_body("made up")))
        received = Bookkeeping(Mailbox(9, {"the-pipeline": Ranges().add_range(1, 99)}))
        for to in ("north", "south"):
            for origin in ("west", "north"):
                assert send_forged(nodes, "west", to, LetterBundle(ANN, (made_up,), origin, 0)) == 200
            assert send_forged(nodes, "west", to, MailboxChunk(ANN, 9, "west", START, (), True, received)) == 200
        leave_event(nodes["north"], "north", batch, "ann", batch)
        expected = [str(number) for number in range(1, batch + 1)]
        until(lambda expected=expected: ids_of(ann) == expected, "the letters of the pipeline")


def test_the_previous_office_cannot_open_the_mailbox_of_a_visitor(nodes: dict[str, RunningNode]) -> None:
    """While a subscriber is served here, only its own proof or its home counts, also while that is away."""
    ann = nodes["north"].subscriber("ann")
    there = visitor(nodes["south"], ANN, ann.token)
    there.pull()
    nodes["west"].service.office.admission.judge_move = lambda *_: "yes"
    thief = visitor(nodes["south"], ANN, "made up")
    thief._calls.mailbox.office, thief._calls.mailbox.epoch = "west", 60
    with pytest.raises(PermissionDeniedError):
        thief.pull()
    nodes["north"].stop()
    with pytest.raises(UnavailableError):
        thief.pull()
    assert there.pull() == []


def test_an_office_vouches_for_its_visitor_while_the_home_is_away(nodes: dict[str, RunningNode]) -> None:
    """A migration needs no third office."""
    ann = visitor(nodes["south"], ANN, nodes["north"].subscriber("ann").token)
    ann.pull()
    nodes["north"].stop()
    ann.migrate(nodes["west"].url)
    assert ann.pull() == []


def test_a_move_proof_alone_cannot_be_replayed(nodes: dict[str, RunningNode]) -> None:
    """Without the secret of the arrival there is no token, neither here nor at home."""
    ann = nodes["north"].subscriber("ann")
    for epoch, domain in enumerate(("south", "west", "north"), start=2):
        ann.migrate(nodes[domain].url)
        move_proof = str(MoveProofChain(ann.token or "").proof(ANN, epoch))
        answer = replay(nodes[domain], ANN, epoch, move_proof)
        assert (answer.status_code, answer.json()["error"]["epoch"]) == (409, epoch)
        assert ann.pull() == []


def test_an_arrival_may_be_repeated_with_its_secret(nodes: dict[str, RunningNode]) -> None:
    ann = nodes["north"].subscriber("ann")
    move_proof = str(MoveProofChain(ann.token or "").proof(ANN, 2))
    answers = [replay(nodes["south"], ANN, 2, move_proof, secret) for secret in ("a" * 16, "a" * 16, "b" * 16)]
    assert [answer.status_code for answer in answers] == [200, 200, 409]


def test_a_far_epoch_is_left_to_the_home(nodes: dict[str, RunningNode]) -> None:
    """It vouches for it, also to the office that has the mailbox."""
    ann = nodes["north"].subscriber("ann")
    ann.migrate(nodes["south"].url)
    ann._calls.mailbox.epoch = 150_000
    ann.migrate(nodes["west"].url)
    assert ann.pull() == []
    assert ann._calls.mailbox.epoch == 150_001


def test_a_renewed_token_recalls_the_mailbox(nodes: dict[str, RunningNode]) -> None:
    """Although the old token was used for more arrivals that the home has not heard of."""
    ann = nodes["north"].subscriber("ann")
    thief = visitor(nodes["south"], ANN, ann.token)
    thief.pull()
    south = nodes["south"].service.office
    carried, south.sender.send = south.sender.send, lambda to, message: None
    thief._calls.mailbox.epoch = 8
    thief.migrate(nodes["south"].url)
    south.sender.send = carried
    ann.renew_token()
    until(
        lambda: nodes["north"].http.get("/v1/mailbox", headers={"authorization": f"Bearer {ann.token}"}).is_success,
        "the mailbox to be home",
    )
    with pytest.raises(ElsewhereError):
        thief.pull()


def test_failed_arrivals_are_forgotten(tmp_path: Path) -> None:
    """At once if they are refused; at the next start if the node was stopped meanwhile."""
    with backbone(tmp_path, "north", "south") as nodes:
        ann, ben = nodes["north"].subscriber("ann"), nodes["north"].subscriber("ben")
        ann.migrate(nodes["south"].url)
        ben.migrate(nodes["south"].url)
        visitors = nodes["south"].service.office.visitors
        row = visitors.find(BEN)
        ben.migrate(nodes["north"].url)
        until(lambda: visitors.find(BEN) is None, "ben to be forgotten")
        visitors._put(row)
        nodes["south"].stop()
        with running_node(tmp_path / "south", domain="south") as south:
            visitors = south.service.office.visitors
            assert (visitors.names(), visitors.by_token(row.token_hash)) == ([ANN], None)
            answer = south.http.get("/v1/mailbox", headers={"authorization": f"Bearer {ben.mailbox_token}"})
            assert answer.status_code in (401, 409)
