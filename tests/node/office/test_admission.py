"""Admission: which statements of other offices are believed, kind by kind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import orjson
import pytest

from roamcast.deliver.addressing import SubscriberNames
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
from roamcast.deliver.port import NO_OFFICE, START, LetterKey
from roamcast.deliver.requests import LetterState, TraceLetter, TraceReply
from roamcast.errors import InputError, PermissionDeniedError, UnavailableError
from roamcast.model import Letter
from roamcast.node.control.entity_cache import EntityCache
from roamcast.node.office.actor import OfficeActor
from roamcast.node.office.admission import _RULES, Admission
from roamcast.node.office.visitors import Visitors
from roamcast.node.peers.peer_file import Peer, Peers
from roamcast.node.peers.signed_http import SignedHttp
from roamcast.security.move_proofs import LAST_EPOCH, MoveProofChain
from roamcast.security.tokens import PublishProof, hash_token
from roamcast.store.registry.values import Entity

ANN, CLEO = "north.node.ann", "south.node.cleo"
TOKEN = "the token of ann"
CHAIN = MoveProofChain(TOKEN)


class Homes:
    """Other offices, which give the same verdict on every move proof, or do not respond."""

    def __init__(self) -> None:
        self.verdict: str | None = "unknown"
        self.requested: list[str] = []

    async def post(self, peer: Peer, path: str, body: bytes) -> bytes:
        self.requested.append(peer.domain)
        if self.verdict is None:
            raise UnavailableError(f"{peer.domain} does not respond")
        return orjson.dumps({"verdict": self.verdict})


class World:
    """The admission of office `north`, the home of ann, with peers `south` and `west`. Cleo, of south, may visit it."""

    def __init__(self, folder: Path) -> None:
        self.homes = Homes()
        self.visitors: dict[str, Any] = {}
        peers = Peers(folder / "peers.json")
        for domain in ("south", "west"):
            peers.put(Peer(domain, f"http://{domain}", "00" * 32))
        entities = EntityCache(
            [
                Entity("ann", "subscriber", hash_token(TOKEN)),
                Entity("cam", "source", hash_token("cam"), {"a": 1}),
                Entity("hub", "gateway", hash_token("hub")),
                Entity("meter", "source", None, gateway="hub"),
            ]
        )
        self.admission = Admission(
            SubscriberNames("north"),
            entities,
            cast(Visitors, SimpleNamespace(find=self.visitors.get)),
            cast(OfficeActor, SimpleNamespace()),
            cast(SignedHttp, self.homes),
            peers,
        )

    def visit(self, epoch: int, chain: MoveProofChain = MoveProofChain("the token of cleo")) -> MoveProofChain:  # noqa: B008
        """Cleo is served at north."""
        self.visitors[CLEO] = SimpleNamespace(name=CLEO, epoch=epoch, move_proof=str(chain.proof(CLEO, epoch)))
        return chain

    def admit(self, peer: str, message: PeerMessage) -> PeerMessage | None:
        return asyncio.run(self.admission.admit(peer, message))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_every_kind_of_message_has_a_rule() -> None:
    assert set(_RULES) == set(get_args(PeerMessage))


@pytest.mark.parametrize(
    "message",
    [
        LetterBundle(ANN, (Letter(ANN, CLEO, 1, "{}"),), "south", 1),
        TraceQuery(TraceLetter("ticket", ANN, CLEO, 1), "south", 1),
        TraceReply("ticket", LetterState.ACKNOWLEDGED, "south"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_any_peer_may_pass_on_letters_and_traces(world: World, message: PeerMessage) -> None:
    assert world.admit("west", message) is message


PIPELINE = "0b54a1f06d5f4a0e8f4e8b7f2f2d7c11"


@pytest.mark.parametrize("sender", [PIPELINE, "the-pipeline", "", "north", "north.node", f"north.node.{PIPELINE}."])
@pytest.mark.parametrize("origin", ["north", "south", "west"])
def test_letters_of_a_pipeline_come_only_from_the_receivers_home(world: World, sender: str, origin: str) -> None:
    """Not from an office that forwards them, whoever it names as their origin, nor among other letters."""
    for receiver, home in ((ANN, "north"), (CLEO, "south")):
        bundle = LetterBundle(receiver, (Letter(receiver, ANN, 1, "{}"), Letter(receiver, sender, 1, "{}")), origin, 1)
        believed = [peer for peer in ("south", "west") if world.admit(peer, bundle) is not None]
        assert believed == [peer for peer in ("south", "west") if peer == home]


@pytest.mark.parametrize(
    "message",
    [
        BundleReceipt(CLEO, (LetterKey(ANN, 1),), (), "south", 7, False),
        LocationQuery(ANN, "south"),
        MailboxClaim(ANN, 2, "south", str(CHAIN.proof(ANN, 2))),
        MailboxChunk(ANN, 9, "south", START, (), True),
        AddressUpdate(ANN, "south", 2, False, str(CHAIN.proof(ANN, 2))),
        AddressUpdate(CLEO, "south", 2, True),
        AddressUpdateReceipt(ANN, 2, "south", True),
    ],
    ids=lambda message: type(message).__name__,
)
def test_an_office_speaks_only_for_itself(world: World, message: PeerMessage) -> None:
    """The same message is believed of the office it names, and dropped if another one sends it."""
    if isinstance(message, BundleReceipt):
        sent = world.admission.prepare_to_send("south", LetterBundle(CLEO, (Letter(CLEO, ANN, 1, "{}"),), "north", 1))
        assert isinstance(sent, LetterBundle)
        message = BundleReceipt(CLEO, message.accepted, (), "south", 7, False, sent.stamp)
    assert world.admit("south", message) == message
    assert world.admit("west", message) is None


def test_epochs_that_cannot_be_are_dropped(world: World) -> None:
    assert world.admit("south", AddressUpdate(CLEO, "south", LAST_EPOCH, True)) is not None
    assert world.admit("south", AddressUpdate(CLEO, "south", LAST_EPOCH + 1, True)) is None


def test_a_receipt_needs_the_stamp_of_its_letters(world: World) -> None:
    """Only an office that was sent just these letters has it. Without an epoch, only the home may send it."""
    letters = tuple(Letter(CLEO, ANN, number, "{}") for number in (1, 2))
    sent = world.admission.prepare_to_send("west", LetterBundle(CLEO, letters, "north", 1))
    assert isinstance(sent, LetterBundle)
    first, second = LetterKey(ANN, 1), LetterKey(ANN, 2)
    good = BundleReceipt(CLEO, (first,), (second,), "west", 7, False, sent.stamp)
    assert world.admit("west", good) is good
    assert world.admit("west", BundleReceipt(CLEO, (first,), (), "west", 7, False, sent.stamp)) is None
    assert world.admit("west", BundleReceipt(ANN, (first, second), (), "west", 7, False, sent.stamp)) is None
    assert world.admit("west", BundleReceipt(CLEO, (first, second), (), "west", 7, False, "")) is None
    assert world.admit("west", BundleReceipt(CLEO, (first, second), (), "west", 0, False, sent.stamp)) is None
    from_home = BundleReceipt(CLEO, (first, second), (), "south", 0, False, sent.stamp)
    assert world.admit("south", from_home) is from_home


def test_letters_of_other_offices_keep_their_stamp(world: World) -> None:
    passed_on = LetterBundle(CLEO, (), "west", 1, "their stamp")
    assert world.admission.prepare_to_send("south", passed_on) is passed_on


def test_a_location_comes_from_the_home_or_an_office_that_was_asked(world: World) -> None:
    """Only the home may say that a subscriber does not exist. A claim asks, and its end ends that."""
    located, denied = LocationReply(CLEO, "west", 3), LocationReply(CLEO, NO_OFFICE, 3)
    assert world.admit("south", located) is located
    assert world.admit("south", denied) is denied
    assert world.admit("west", located) is None
    world.admission.prepare_to_send("west", MailboxClaim(CLEO, 3, "north", "proof"))
    assert world.admit("west", located) is located
    assert world.admit("west", denied) is None
    world.admission.note_refused(CLEO)
    assert world.admit("west", located) is None


def test_a_chunk_receipt_comes_from_the_office_the_mailbox_goes_to(world: World) -> None:
    """Until it says that it has everything, or the mailbox is here again."""
    world.admission.prepare_to_send("south", MailboxChunk(ANN, 2, "north", START, (), False))
    some, all_of_it = ChunkReceipt(ANN, 2, START, False), ChunkReceipt(ANN, 2, START, True)
    assert world.admit("west", all_of_it) is None
    assert world.admit("south", some) is some
    assert world.admit("south", all_of_it) is all_of_it
    assert world.admit("south", all_of_it) is None
    world.admission.prepare_to_send("south", MailboxChunk(ANN, 3, "north", START, (), False))
    world.admission.note_arrived(ANN)
    assert world.admit("south", some) is None


@pytest.mark.parametrize("proof", ["", "recall", str(MoveProofChain("fake").proof(ANN, 2)), str(CHAIN.proof(ANN, 3))])
def test_the_home_believes_only_its_subscribers_proof(world: World, proof: str) -> None:
    assert world.admit("west", AddressUpdate(ANN, "west", 2, True, proof)) is None
    assert world.admit("west", MailboxClaim(ANN, 2, "west", proof)) in (None, LocationQuery(ANN, "west"))


def test_a_home_may_recall_its_own_subscribers(world: World) -> None:
    recall = MailboxClaim(CLEO, 9, "south", "")
    assert world.admit("south", recall) is recall
    assert world.admit("west", MailboxClaim(CLEO, 9, "west", "")) is None


def test_a_claim_of_a_visitor_needs_the_next_link(world: World) -> None:
    """Without a valid proof it becomes a question where the subscriber is."""
    chain = world.visit(epoch=5)
    claim = MailboxClaim(CLEO, 6, "west", str(chain.proof(CLEO, 6)))
    assert world.admit("west", claim) is claim
    forged = MailboxClaim(CLEO, 6, "west", str(MoveProofChain("made up").proof(CLEO, 6)))
    assert world.admit("west", forged) == LocationQuery(CLEO, "west")
    assert world.homes.requested == []


def test_a_claim_of_a_far_epoch_is_left_to_the_home(world: World) -> None:
    """Hashing that far for an unknown caller would be too expensive."""
    chain = world.visit(epoch=5)
    claim = MailboxClaim(CLEO, 50_000, "west", str(chain.proof(CLEO, 50_000)))
    for verdict, admitted in (("yes", claim), ("no", LocationQuery(CLEO, "west")), (None, None)):
        world.homes.verdict = verdict
        assert world.admit("west", claim) == admitted
    assert world.homes.requested == ["south"] * 3


def test_an_address_update_to_the_home_carries_the_move_proof(world: World) -> None:
    """Of the epoch it is about, and to nobody else."""
    world.visit(epoch=5)
    update = AddressUpdate(CLEO, "north", 5, False)
    sent = world.admission.prepare_to_send("south", update)
    assert isinstance(sent, AddressUpdate)
    assert sent.move_proof == world.visitors[CLEO].move_proof
    assert world.admission.prepare_to_send("west", update) is update
    earlier = AddressUpdate(CLEO, "north", 4, False)
    assert world.admission.prepare_to_send("south", earlier) is earlier


def test_move_proofs_are_judged_by_local_knowledge(world: World) -> None:
    """The home knows; another office knows its visitors; nobody else does."""
    judge = world.admission.judge_move
    assert judge(ANN, 2, str(CHAIN.proof(ANN, 2))) == "yes"
    assert judge(ANN, 3, str(CHAIN.proof(ANN, 2))) == "no"
    assert judge("north.node.cam", 2, str(MoveProofChain("cam").proof("north.node.cam", 2))) == "no"
    assert judge("north.node.nobody", 2, str(CHAIN.proof("north.node.nobody", 2))) == "no"
    assert judge(CLEO, 2, str(CHAIN.proof(CLEO, 2))) == "unknown"
    chain = world.visit(epoch=5)
    assert judge(CLEO, 6, str(chain.proof(CLEO, 6))) == "yes"
    assert judge(CLEO, 6, str(CHAIN.proof(CLEO, 6))) == "unknown"
    with pytest.raises(InputError):
        judge(ANN, 2, "not a proof")


def test_an_arrival_is_vouched_for_by_the_home(world: World) -> None:
    def check(previous: str | None = None) -> None:
        asyncio.run(world.admission.check_arrival(CLEO, 2, str(CHAIN.proof(CLEO, 2)), previous))

    world.homes.verdict = "yes"
    check()
    world.homes.verdict = "no"
    with pytest.raises(PermissionDeniedError):
        check("west")
    assert world.homes.requested == ["south", "south"]
    world.homes.verdict = None
    with pytest.raises(UnavailableError):
        check()


def test_the_previous_office_is_not_believed_about_a_visitor(world: World) -> None:
    """It could open the mailbox of another."""
    world.visit(epoch=5)
    with pytest.raises(PermissionDeniedError):
        asyncio.run(world.admission.check_arrival(CLEO, 6, str(CHAIN.proof(CLEO, 6)), "west"))
    assert world.homes.requested == ["south"]


def test_publish_proofs_are_judged_at_home(world: World) -> None:
    """For a source, its present token, and the domain it was made for."""
    proof = PublishProof.create("cam", "north", "cam", "south").proof
    assert world.admission.judge_publish("south", "cam", proof) == (True, '{"a":1}')
    for domain, id in (("west", "cam"), ("south", "ann"), ("south", "nobody")):
        assert world.admission.judge_publish(domain, id, proof) == (False, None)


@pytest.mark.parametrize("token", ["hub", "", "None"])
@pytest.mark.parametrize("id", ["hub", "meter"])
def test_gateways_and_their_sources_prove_nothing(world: World, token: str, id: str) -> None:
    """They publish only at their home."""
    proof = PublishProof.create(token, "north", id, "south").proof
    assert world.admission.judge_publish("south", id, proof) == (False, None)


def test_a_peer_sends_requests_only_as_itself(world: World) -> None:
    world.admission.check_sender("south", "south")
    with pytest.raises(PermissionDeniedError, match="south sent a request as west"):
        world.admission.check_sender("south", "west")
