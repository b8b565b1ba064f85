"""The protocols and their parameters, named as in the paper. Choices that the paper leaves open are parameters."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal, TypeAlias

__all__ = ["CET", "DG", "Epidemic", "Protocol", "RatePer", "SprayAndWait"]

RatePer: TypeAlias = Literal["node", "receiver", "sender", "link"]
"""What the field's rate limits: each `node`, both as sender and as receiver; each `receiver`; each `sender`; or each
`link`. A mule puts back at most one event per tick in all cases."""


@dataclass(frozen=True, slots=True)
class CET:
    """Communities, path sets, put-back and queue rules.

    `resend`: an owner sends an event to a mule once (`subscriber`), once in each contact of the mule with the community
    (`contact`), or once in each contact until the mule has received it (`missing`).
    `lost_root`: when a sensor loses the mule, the path set is rebuilt from the remaining roots (`rebuild`), or only the
    paths to that sensor are removed (`cut`).
    `hand_up`: an event moves up one `hop` per tick, or the whole `way` to layer 1 as far as there is room; then only
    the first sender is limited by the rate.
    `left_behind`: copies that are being relayed when the mule leaves are `dropped`, or each `waits` in its queue.
    `stores`: a mule may put back only events that it `wanted`, or `all` that it received.
    `gives`: an event that is put back `moves` to the community, or the mule `copies` it.
    """

    K: int = 200
    alpha: float = 20
    beta: float = 2000.0
    theta: float = 5.0
    gamma: float = 4
    put_back: bool = True
    quiet_s: float = 1.0
    """Time without receiving anything before a mule puts back."""
    resend: Literal["subscriber", "contact", "missing"] = "subscriber"
    lost_root: Literal["rebuild", "cut"] = "rebuild"
    rate_per: RatePer = "node"
    hand_up: Literal["hop", "way"] = "hop"
    left_behind: Literal["dropped", "waits"] = "dropped"
    stores: Literal["wanted", "all"] = "wanted"
    gives: Literal["moves", "copies"] = "moves"

    name = "CET"


@dataclass(frozen=True, slots=True)
class DG:
    """Direct gathering: a sensor sends only to mules in its own reach, newest event first.

    `resend`: an event is sent to a mule once in each `cell` that the mule enters, once in each `contact` of mule and
    sensor, or `once`.
    """

    K: int = 200
    beta: float = 2000.0
    resend: Literal["cell", "contact", "once"] = "cell"
    rate_per: RatePer = "node"

    name = "DG"


@dataclass(frozen=True, slots=True)
class Epidemic:
    """Every node sends nodes in reach what they lack, newest first; mules carry all events.

    Without limits of queue, age and rate, no protocol can deliver more.
    """

    K: float = inf
    beta: float = inf

    name = "Epidemic"


@dataclass(frozen=True, slots=True)
class SprayAndWait:
    """Binary Spray-and-Wait (Spyropoulos et al. 2005): an event starts as `L` copies at its source.

    A node with several copies of an event gives half of them, rounded down, to a node in reach that never had it. Mules
    are the destinations: a mule that wants an event gets it in any case, also from a node with a single copy.
    """

    L: int = 8
    K: float = inf
    beta: float = inf

    name = "Spray-and-Wait"


Protocol: TypeAlias = CET | DG | Epidemic | SprayAndWait
