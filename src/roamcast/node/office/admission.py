"""Admission: what this office believes of what other offices, subscribers and sources claim.

Other offices are authenticated by their signatures. That a peer has signed a message does not make it true: each kind
of message has a rule, see `_RULES`. In short:

- An office speaks only for itself. A message that names another office as its sender is dropped.
- A mailbox leaves this office only for a subscriber that has proved its move, and is deleted here only when the office
  it was handed to confirms it.
- A letter of a pipeline is accepted only from the receiver's home, where pipelines deposit.
- A letter is deleted here only when an office confirms it that has been sent this letter.
- Only its home may say that a subscriber does not exist. Other than the home, only an office that was asked for a
  mailbox may say where it is. The home itself believes only the subscriber's proof.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

import orjson
from starlette.concurrency import run_in_threadpool

from roamcast.deliver.addressing import SubscriberNames, home_of
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
from roamcast.deliver.port import NO_OFFICE, LetterKey, key_of
from roamcast.deliver.posting import may_post
from roamcast.deliver.requests import TraceReply
from roamcast.errors import NotFoundError, PermissionDeniedError, RoamcastError, UnavailableError
from roamcast.node.control.entity_cache import EntityCache
from roamcast.node.office.actor import OfficeActor
from roamcast.node.office.visitors import Visitors
from roamcast.node.office.visits import check_visit, office_of
from roamcast.node.peers.peer_file import Peers
from roamcast.node.peers.signed_http import SignedHttp
from roamcast.security.move_proofs import LAST_EPOCH, MoveProof, follows, is_far, is_valid
from roamcast.security.signing import mac, new_key, same, sender_order
from roamcast.security.tokens import PublishProof

__all__ = ["VOUCH", "Admission", "ProofVerdict", "Verdict"]

VOUCH: Final = "/v1/office/vouch"

_HOME_WAIT: Final = 1.0  # seconds

Verdict = Literal["yes", "no", "unknown"]
"""Whether a move proof is valid; `unknown` if this office knows nothing of the subscriber."""


class ProofVerdict(NamedTuple):
    """What a home answers about a publish proof: whether it is valid, and the source's attributes as JSON."""

    valid: bool
    attributes: str | None = None


class Admission:
    """Decides what to believe. Belongs to one event loop."""

    def __init__(
        self,
        names: SubscriberNames,
        entities: EntityCache,
        visitors: Visitors,
        actor: OfficeActor,
        signed_http: SignedHttp,
        peers: Peers,
    ) -> None:
        self._names = names
        self._entities = entities
        self._visitors = visitors
        self._actor = actor
        self._signed_http = signed_http
        self._peers = peers
        self._asked: dict[str, set[str]] = {}  # by subscriber: the offices asked for its mailbox
        self._handing_over: dict[str, str] = {}  # by subscriber: the office its mailbox goes to
        self._last_changes: dict[str, tuple[str, int]] = {}  # by visitor from here: see `sender_order`
        self._stamp_key = new_key()  # letters sent before a restart are sent again after it

    async def admit(self, peer: str, message: PeerMessage) -> PeerMessage | None:
        """The message to handle: itself, a question in its place, or None if it is not believed."""
        if getattr(message, "epoch", 0) > LAST_EPOCH:
            return None
        return await _RULES[type(message)](self, peer, message)

    def check_sender(self, peer: str, domain: str) -> None:
        """Raises PermissionDeniedError if a peer speaks for another domain."""
        if domain != peer:
            raise PermissionDeniedError(f"{peer} sent a request as {domain}", where="node")

    def judge_move(self, name: str, epoch: int, move_proof: str) -> Verdict:
        """Judge a move proof by local knowledge. Raises InputError.

        Slow only at the subscriber's home, and only if the proof is genuine.
        """
        proof = MoveProof.parse(move_proof)
        if self._names.is_home_of(name):
            id = self._names.id_of(name)
            entity = None if id is None else self._entities.find(id)
            if entity is None or entity.kind != "subscriber" or entity.token_hash is None:
                return "no"
            return "yes" if is_valid(proof, name, epoch, entity.token_hash) else "no"
        visitor = self._visitors.find(name)
        if visitor is not None and follows(proof.link, epoch, MoveProof.parse(visitor.move_proof).link, visitor.epoch):
            return "yes"
        return "unknown"

    async def visiting_id(self, peer: str, name: str, epoch: int) -> str:
        """For the home: the id of a subscriber for whom a peer passes on a request, as it visits there in this epoch.

        The home believes the subscriber's move proof only, see `_address_update`. Raises NotFoundError, ElsewhereError
        if it is not there, and UnavailableError if the home has not heard of its arrival yet.
        """
        id = self._names.id_of(name)
        entity = None if id is None else self._entities.find(id)
        if entity is None or entity.kind != "subscriber":
            raise NotFoundError("no such subscriber", where=name, hint="it is not registered here")
        domain = self._names.domain
        office, known = await asyncio.wrap_future(self._actor.query(lambda store: office_of(store, domain, name)))
        check_visit(name, peer, epoch, office, known)
        return entity.id

    def check_order(self, name: str, nonce: str) -> None:
        """For the home: admit a visitor's change, unless a later one was admitted before. Raises UnavailableError.

        A request that was on its way for too long would undo what its subscriber has done since.
        """
        order = session, number = sender_order(nonce)
        last_session, last_number = self._last_changes.get(name, order)
        if session == last_session and number < last_number:
            raise UnavailableError("a later change came before this one", where=name, hint="repeat it if it is wanted")
        self._last_changes[name] = order

    def judge_publish(self, domain: str, id: str, proof: str) -> ProofVerdict:
        """For the home: whether source `id` made this publish proof for nodes of `domain`.

        A source of a gateway has no token to make one from.
        """
        entity = self._entities.find(id)
        if entity is None or entity.kind != "source" or entity.token_hash is None:
            return ProofVerdict(False)
        if not PublishProof(self._names.domain, id, proof).is_valid(domain, entity.token_hash):
            return ProofVerdict(False)
        return ProofVerdict(True, self._entities.attributes_json(id))

    async def check_arrival(self, name: str, epoch: int, move_proof: str, previous: str | None) -> None:
        """Raises PermissionDeniedError unless the subscriber has proved its move, UnavailableError if unknown.

        Local knowledge decides; else the subscriber's home; while that is away, the previous office. The latter is not
        believed about a subscriber that is served here or whose arrival is recorded here: it could open another's
        mailbox.
        """
        verdict = await run_in_threadpool(self.judge_move, name, epoch, move_proof)
        home_error: RoamcastError | None = None
        if verdict == "unknown":
            try:
                async with asyncio.timeout(_HOME_WAIT):
                    verdict = await self._ask(home_of(name), name, epoch, move_proof)
            except UnavailableError as error:
                home_error = error
            except TimeoutError:
                home_error = UnavailableError("the home node does not respond", where=name, hint="arrive again later")
        if verdict == "unknown" and previous is not None and not await self._is_here(name):
            verdict = await self._ask(previous, name, epoch, move_proof)
        if verdict == "unknown" and home_error is not None:
            raise home_error
        if verdict != "yes":
            raise PermissionDeniedError(
                "invalid move proof", where=name, hint="use the subscriber's name and its current token"
            )

    def prepare_to_send(self, to: str, message: PeerMessage) -> PeerMessage:
        """The message to send: own letters get a stamp, an address update to the home the subscriber's move proof.

        Remembers what a later answer will be judged by.
        """
        match message:
            case LetterBundle(receiver, letters, origin) if origin == self._names.domain:
                return replace(message, stamp=self._stamp(receiver, map(key_of, letters)))
            case MailboxChunk(name):
                self._handing_over[name] = to
            case MailboxClaim(name):
                self._asked.setdefault(name, set()).add(to)
            case AddressUpdate(name, epoch=epoch) if home_of(name) == to:
                visitor = self._visitors.find(name)
                if visitor is not None and visitor.epoch == epoch:
                    return replace(message, move_proof=visitor.move_proof)
        return message

    def note_arrived(self, name: str) -> None:
        """The mailbox is here."""
        self._handing_over.pop(name, None)
        self._asked.pop(name, None)

    def note_refused(self, name: str) -> None:
        """The arrival has failed."""
        self._asked.pop(name, None)

    async def _any_peer(self, _: str, message: PeerMessage) -> PeerMessage | None:
        """Believed if it comes from any peer."""
        return message

    async def _letters(self, peer: str, message: LetterBundle) -> PeerMessage | None:
        """Believed if it comes from any peer; with letters of a pipeline, only from the receiver's home."""
        return message if may_post(peer, message) else None

    async def _sender_itself(
        self, peer: str, message: LocationQuery | MailboxChunk | AddressUpdateReceipt
    ) -> PeerMessage | None:
        """Believed if it comes from the office that it names as its sender."""
        return message if message.from_office == peer else None

    async def _bundle_receipt(self, peer: str, message: BundleReceipt) -> PeerMessage | None:
        """Believed if it comes from an office that has the mailbox, or the home, and is for letters with our stamp."""
        if message.from_office != peer or not (message.epoch > 0 or home_of(message.receiver) == peer):
            return None
        keys = (*message.accepted, *message.rejected)
        return message if same(message.stamp, self._stamp(message.receiver, keys)) else None

    async def _location(self, peer: str, message: LocationReply) -> PeerMessage | None:
        """Believed if it comes from the home, or from an office that was asked and does not deny the subscriber."""
        was_asked = message.office != NO_OFFICE and peer in self._asked.get(message.name, ())
        return message if was_asked or home_of(message.name) == peer else None

    async def _claim(self, peer: str, claim: MailboxClaim) -> PeerMessage | None:
        """Believed if it comes from the home, which may recall its subscribers, or with a valid move proof.

        Without a proof, the claim becomes a question to answer: where is the subscriber?
        """
        if claim.from_office != peer:
            return None
        if home_of(claim.name) == peer:
            return claim
        try:
            verdict = await run_in_threadpool(self.judge_move, claim.name, claim.epoch, claim.move_proof)
            visitor = self._visitors.find(claim.name)
            if verdict == "unknown" and visitor is not None and is_far(claim.epoch, visitor.epoch):
                verdict = await self._ask(home_of(claim.name), claim.name, claim.epoch, claim.move_proof)
        except RoamcastError:
            return None
        return claim if verdict == "yes" else LocationQuery(claim.name, claim.from_office)

    async def _address_update(self, peer: str, message: AddressUpdate) -> PeerMessage | None:
        """Believed if it comes from the office it names. The home also requires the subscriber's move proof."""
        if message.office != peer:
            return None
        if not self._names.is_home_of(message.name):
            return message
        try:
            verdict = await run_in_threadpool(self.judge_move, message.name, message.epoch, message.move_proof)
        except RoamcastError:
            return None
        return message if verdict == "yes" else None

    async def _chunk_receipt(self, peer: str, message: ChunkReceipt) -> PeerMessage | None:
        """Believed if it comes from the office that the mailbox is handed to."""
        if self._handing_over.get(message.name) != peer:
            return None
        if message.complete:
            del self._handing_over[message.name]
        return message

    async def _ask(self, office: str, name: str, epoch: int, move_proof: str) -> Verdict:
        """Ask another office; `unknown` if it has not joined. Raises UnavailableError if it does not respond."""
        peer = self._peers.find(office)
        if peer is None or office == self._names.domain:
            return "unknown"
        request = orjson.dumps({"name": name, "epoch": epoch, "move_proof": move_proof})
        verdict = orjson.loads(await self._signed_http.post(peer, VOUCH, request))["verdict"]
        return "yes" if verdict == "yes" else "no" if verdict == "no" else "unknown"

    async def _is_here(self, name: str) -> bool:
        """Whether the subscriber is served here, or its arrival is recorded here."""
        if self._visitors.find(name) is not None:
            return True
        tenures = await asyncio.wrap_future(self._actor.query(lambda store: store.tenures((name,))))
        return name in tenures and tenures[name].active

    def _stamp(self, receiver: str, keys: Iterable[LetterKey]) -> str:
        """Proves that who returns it was sent just these letters, or was passed them, since this process started."""
        parts = (part for sender, number in sorted(keys) for part in (sender, str(number)))
        return mac(self._stamp_key, "stamp", receiver, *parts).hex()


_Rule = Callable[[Admission, str, Any], Awaitable[PeerMessage | None]]

_RULES: Final[Mapping[type[Any], _Rule]] = {
    LetterBundle: Admission._letters,
    BundleReceipt: Admission._bundle_receipt,
    LocationQuery: Admission._sender_itself,
    LocationReply: Admission._location,
    MailboxClaim: Admission._claim,
    MailboxChunk: Admission._sender_itself,
    ChunkReceipt: Admission._chunk_receipt,
    AddressUpdate: Admission._address_update,
    AddressUpdateReceipt: Admission._sender_itself,
    TraceQuery: Admission._any_peer,
    TraceReply: Admission._any_peer,
}
"""Which rule decides about which kind of message. Every kind has one."""
