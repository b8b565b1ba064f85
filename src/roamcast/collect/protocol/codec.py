"""Messages, notes and transfers as bytes: a kind, and its fields in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from roamcast.collect.protocol.encoding import Reader, Writer
from roamcast.collect.protocol.messages import (
    Answer,
    Bid,
    Call,
    CellEntry,
    Grant,
    Handover,
    Have,
    Hello,
    KeeperQuery,
    Kept,
    Message,
    NewHead,
    Note,
    Nothing,
    Offer,
    Path,
    Poll,
    PutBack,
    Relay,
    Status,
    Stop,
    Transfer,
)
from roamcast.errors import InputError

__all__ = ["Said", "decode", "encode"]

Said: TypeAlias = Message | Note | Transfer

_MAX_STOPS: Final = 255


def encode(said: Said, now: int) -> bytes:
    """Encode what a node says. `now` is its time, to which times are made relative."""
    writer = Writer(now)
    kind = _KINDS[type(said)]
    writer.pack("B", kind)
    _WRITERS[kind](writer, said)
    return writer.bytes()


def decode(data: bytes, as_of: int) -> Said:
    """Decode a message that was encoded at `as_of` on the reader's clock. Raises InputError."""
    reader = Reader(data, as_of)
    kind = reader.number("B")
    if kind not in _READERS:
        raise InputError(f"unknown kind of message: {kind}")
    said = _READERS[kind](reader)
    reader.end()
    return said


def _write_stop(w: Writer, stop: Stop) -> None:
    if isinstance(stop.place, tuple):
        w.pack("Bhh", 0, *stop.place)
    else:
        w.pack("BI", 1, stop.place)
    w.time(stop.begin)
    w.time(stop.until)


def _read_stop(r: Reader) -> Stop:
    place = r.number("I") if r.number("B") else r.pair("hh")
    return Stop(place, r.time(), r.time())


def _write_path(w: Writer, path: Path) -> None:
    w.pack("IQ", path.mule, path.version)
    w.sequence(path.stops, lambda stop: _write_stop(w, stop), _MAX_STOPS)


def _write_have(w: Writer, have: Have) -> None:
    w.pack("IQ", have.mule, have.version)
    w.sequence(have.events, w.event_id)


def _write_status(w: Writer, status: Status) -> None:
    w.pack("IQB", status.node, status.version, status.is_full)
    w.sequence(status.mules, lambda mule: w.pack("I", mule), 255)


def _write_offer(w: Writer, offer: Offer) -> None:
    w.pack("Q", offer.number)
    w.sequence(offer.events, w.event_id)


def _write_answer(w: Writer, answer: Answer) -> None:
    w.pack("Q", answer.number)
    w.optional_id(answer.event)
    w.sequence(answer.route, lambda node: w.pack("I", node), 255)


def _write_query(w: Writer, query: KeeperQuery) -> None:
    w.pack("IIQ", query.node, query.mule, query.number)
    w.sequence(query.events, w.event_id)


def _write_grant(w: Writer, grant: Grant) -> None:
    w.pack("IIQ", grant.node, grant.mule, grant.number)
    w.optional_id(grant.event)
    w.sequence(grant.route, lambda node: w.pack("I", node), 255)


def _write_kept(w: Writer, kept: Kept) -> None:
    w.event_id(kept.event)
    w.time(kept.expires)


def _write_handover(w: Writer, handover: Handover) -> None:
    w.pack("H", handover.hops)
    w.event(handover.event)


def _write_relay(w: Writer, relay: Relay) -> None:
    w.pack("HIH", relay.hops, relay.mule, min(relay.successes, 65535))
    w.event(relay.event)


def _write_put_back(w: Writer, given: PutBack) -> None:
    w.pack("HI", given.hops, given.giver)
    w.sequence(given.route, lambda node: w.pack("I", node), 255)
    w.event(given.event)


def _read_relay(r: Reader) -> Relay:
    hops, mule, successes = r.unpack("HIH")
    return Relay(r.event(), hops, mule, successes)


def _read_handover(r: Reader) -> Handover:
    hops = r.number("H")
    return Handover(r.event(), hops)


def _read_put_back(r: Reader) -> PutBack:
    hops, giver = r.unpack("HI")
    route = _nodes(r)
    return PutBack(r.event(), hops, giver, route)


def _read_status(r: Reader) -> Status:
    node, version, is_full = r.unpack("IQB")
    return Status(node, version, _nodes(r), bool(is_full))


def _read_bid(r: Reader) -> Bid:
    node, term = r.unpack("II")
    return Bid(node, term, r.float())


def _read_head(r: Reader) -> NewHead:
    node, term, is_final = r.unpack("IIB")
    return NewHead(node, term, bool(is_final))


def _read_hello(r: Reader) -> Hello:
    community, is_isolated = r.unpack("IB")
    return Hello(community, bool(is_isolated))


def _nodes(r: Reader) -> tuple[int, ...]:
    return r.sequence(lambda: r.number("I"))


# By kind: the type, its writer and its reader. `docs/collect-protocol.md` has the same table.
_FORMATS: Final[dict[int, tuple[type, Callable[[Writer, Any], None], Callable[[Reader], Said]]]] = {
    1: (Hello, lambda w, said: w.pack("IB", said.community, said.is_isolated), _read_hello),
    2: (CellEntry, lambda w, said: None, lambda r: CellEntry()),
    3: (Poll, lambda w, said: None, lambda r: Poll()),
    4: (Nothing, lambda w, said: None, lambda r: Nothing()),
    5: (Offer, _write_offer, lambda r: Offer(r.number("Q"), r.sequence(r.event_id))),
    6: (Answer, _write_answer, lambda r: Answer(r.number("Q"), r.optional_id(), _nodes(r))),
    16: (Path, _write_path, lambda r: Path(*r.pair("IQ"), r.sequence(lambda: _read_stop(r)))),
    17: (Have, _write_have, lambda r: Have(*r.pair("IQ"), r.sequence(r.event_id))),
    18: (Status, _write_status, _read_status),
    19: (Call, lambda w, said: w.pack("II", said.node, said.term), lambda r: Call(*r.pair("II"))),
    20: (Bid, lambda w, said: w.pack("IId", said.node, said.term, said.joules), _read_bid),
    21: (NewHead, lambda w, said: w.pack("IIB", said.node, said.term, said.is_final), _read_head),
    22: (KeeperQuery, _write_query, lambda r: KeeperQuery(*r.triple("IIQ"), r.sequence(r.event_id))),
    23: (Grant, _write_grant, lambda r: Grant(*r.triple("IIQ"), r.optional_id(), _nodes(r))),
    24: (Kept, _write_kept, lambda r: Kept(r.event_id(), r.time())),
    32: (Handover, _write_handover, _read_handover),
    33: (Relay, _write_relay, _read_relay),
    34: (PutBack, _write_put_back, _read_put_back),
}
_KINDS: Final = {kind_of: kind for kind, (kind_of, _, _) in _FORMATS.items()}
_WRITERS: Final = {kind: write for kind, (_, write, _) in _FORMATS.items()}
_READERS: Final = {kind: read for kind, (_, _, read) in _FORMATS.items()}
