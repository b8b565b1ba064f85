"""CET and direct gathering as parameters of the same cores, in units of a node's clock."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal

from roamcast.collect.protocol.rules import CET, DG

__all__ = ["CollectPolicy"]


@dataclass(frozen=True, slots=True)
class CollectPolicy:
    """The rules that nodes and mules follow. `resend` says when an owner forgets that a mule was sent an event."""

    K: float
    alpha: float
    theta: float
    gamma: float
    by_successes: bool
    put_back: bool
    resend: Literal["once", "contact", "missing", "cell"]
    cuts_paths: bool
    relays_whole_way: bool
    keeps_relayed: bool
    stores_all: bool
    keeps_given: bool
    quiet: int
    """Time without receiving anything before a mule puts back."""
    hold: int
    """Time from the arrival of a copy until it may be sent on."""
    patience: int
    """How long to wait for bids, and for the reply of a head."""
    event_bits: float
    """What a transfer of an event costs in the energy model."""

    @classmethod
    def of(cls, protocol: CET | DG, rate: float, event_bits: float, *, hold: int = 0) -> CollectPolicy:
        """The policy of a protocol for a clock with `rate` units a second; infinite: time only orders what happens."""
        cet = protocol if isinstance(protocol, CET) else CET(put_back=False, alpha=inf)
        units = rate if isfinite(rate) else 0
        return cls(
            K=protocol.K,
            alpha=cet.alpha,
            theta=cet.theta,
            gamma=cet.gamma,
            by_successes=isinstance(protocol, CET),
            put_back=cet.put_back,
            resend="once" if protocol.resend == "subscriber" else protocol.resend,
            cuts_paths=cet.lost_root == "cut",
            relays_whole_way=cet.hand_up == "way",
            keeps_relayed=cet.left_behind == "waits",
            stores_all=cet.stores == "all",
            keeps_given=cet.gives == "copies",
            quiet=round(cet.quiet_s * units) if units else -1,
            hold=hold,
            patience=max(1, round(5 * units)),
            event_bits=event_bits,
        )
