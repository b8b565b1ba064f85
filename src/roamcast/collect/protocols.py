"""The protocols and their parameters, named as in the paper. What the paper leaves open is a parameter of its own."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal, TypeAlias

__all__ = ["CET", "DG", "Epidemic", "Protocol"]


@dataclass(frozen=True, slots=True)
class CET:
    """Communities, path sets, put-back and queue rules.

    `resend`: an own event goes to a mule once ever (`subscriber`), once in each contact of the mule with the community
    (`contact`), or once in each contact as long as the mule has not got it (`missing`).
    `lost_root`: when a sensor loses the mule, the path set is laid again from those that have not (`rebuild`), or what
    led to that sensor alone falls away (`cut`).
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

    name = "CET"


@dataclass(frozen=True, slots=True)
class DG:
    """Direct gathering: a sensor hands over to a mule in its own reach only, newest event first.

    `resend`: once in each `cell` that the mule enters, in each `contact` of mule and sensor, or `once` ever.
    """

    K: int = 200
    beta: float = 2000.0
    resend: Literal["cell", "contact", "once"] = "cell"

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
