"""The protocols and their parameters, named as in the paper. What the paper leaves open is a parameter of its own."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal, TypeAlias

__all__ = ["CET", "DG", "Epidemic", "Protocol", "RatePer"]

RatePer: TypeAlias = Literal["node", "receiver", "sender", "link"]
"""What the field's rate is that of: each `node`, as one that sends and as one that receives, however many there are at
the other end; each `receiver`, whatever a sensor sends to others; each `sender`, whatever others send; or each `link`
between two. A mule that puts back gives one event in a tick in any case."""


@dataclass(frozen=True, slots=True)
class CET:
    """Communities, path sets, put-back and queue rules.

    `resend`: an own event goes to a mule once ever (`subscriber`), once in each contact of the mule with the community
    (`contact`), or once in each contact as long as the mule has not got it (`missing`).
    `lost_root`: when a sensor loses the mule, the path set is laid again from those that have not (`rebuild`), or what
    led to that sensor alone falls away (`cut`).
    `hand_up`: an event climbs one `hop` in a tick, or all of its `way` to layer 1, as far as there is room: then only
    who begins is held to the rate.
    `left_behind`: what is on its way up when the mule is gone is `dropped`, or `waits` in its queue for the mule.
    `stores`: a mule may put back what it has `wanted` alone, or `all` that it has received.
    `gives`: what is put back `moves` to the community, or `copies` do.
    """

    K: int = 200
    alpha: float = 20
    beta: float = 2000.0
    theta: float = 5.0
    gamma: float = 4
    put_back: bool = True
    quiet_s: float = 1.0
    """How long a mule must have received nothing before it puts back."""
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
    """Direct gathering: a sensor hands over to a mule in its own reach only, newest event first.

    `resend`: once in each `cell` that the mule enters, in each `contact` of mule and sensor, or `once` ever.
    """

    K: int = 200
    beta: float = 2000.0
    resend: Literal["cell", "contact", "once"] = "cell"
    rate_per: RatePer = "node"

    name = "DG"


@dataclass(frozen=True, slots=True)
class Epidemic:
    """Everybody gives everybody in reach what the other lacks, newest first; mules carry all there is.

    With neither limit of room, of time nor of rate nothing can deliver more.
    """

    K: float = inf
    beta: float = inf

    name = "Epidemic"


Protocol: TypeAlias = CET | DG | Epidemic
