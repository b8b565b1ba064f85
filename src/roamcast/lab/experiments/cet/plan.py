"""Measurements and claims of the CET paper, and the runs that reproduce them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from roamcast.collect.protocol.rules import CET, DG, Epidemic, Protocol
from roamcast.collect.simulation.field import Field
from roamcast.collect.simulation.replication import Replication

__all__ = [
    "BOTH",
    "DEFAULTS",
    "DEVIATIONS",
    "INTERPRETATIONS",
    "LIFETIMES",
    "PAPER",
    "SKIPPING",
    "SWEEPS",
    "TABLES",
    "CetClaim",
    "CetSweep",
    "replications_of",
]  # fmt: skip

DEFAULTS = Field()
BOTH: dict[str, Protocol] = {"CET": CET(), "DG": DG()}
SKIPPING = "CET, skipping"
"""The interpretation in which a community skips what the mule has: closer to figures 9 and 10, not to table 2."""
_SWEPT: dict[str, Protocol] = {**BOTH, SKIPPING: CET(resend="missing")}

PAPER = {
    "CET": {"delivery_ratio": 0.910, "copies": 5.5, "delay_s": 193.8, "lifetime_days": 2.57},
    "DG": {"delivery_ratio": 0.470, "copies": 75.9, "delay_s": 615.5, "lifetime_days": 6.04},
}
"""Tables 2 and 3."""

DEVIATIONS = {
    "CET copies": "sensors do not know what a mule wants: an event is sent to nine of ten mules, and keepers send "
    "events that were put back again; no interpretation gives less than nine",
    "CET delay_s": "the size of the largest community varies strongly between fields",
    "CET lifetime_days": "the first sensor dies where paths meet, which varies strongly between fields",
    "DG delivery_ratio": "no interpretation that fits delay, copies and lifetime comes close; speeds from 0, as in "
    "table 1, come closer, but CET then loses a tenth",
    "DG copies": "a mule receives 20 events per second in all; with 20 from each sensor (rate_per = sender) it is "
    "closer. How often a sensor resends to a mule in reach is open too: see the interpretations",
    "DG delay_s": "this is the time to the next visit of a mule; with speeds from 0, as in table 1, it is closer",
    "DG lifetime_days": "it depends on the number of transfers: see copies",
}
"""Reasons for differences from tables 2 and 3."""

LIFETIMES = {"CET": replace(DEFAULTS, duration_s=4 * 86_400.0), "DG": replace(DEFAULTS, duration_s=9 * 86_400.0)}
"""Long enough for most runs; a run without a death is repeated with a longer duration."""


class CetClaim(NamedTuple):
    """A claim of the paper: how the measure `what` of a protocol changes from the first point to the last.

    `change` is `rises`, `falls` or `stays`; or, for both protocols, `above` or `below`: CET compared with DG at each
    point. `why` is the reason for a different result here, if known.
    """

    protocol: str
    what: str
    change: str
    why: str = ""


TABLES = (
    CetClaim("CET, DG", "delivery_ratio", "above"),
    CetClaim("CET, DG", "copies", "below"),
    CetClaim("CET, DG", "delay_s", "below"),
    CetClaim("CET, DG", "lifetime_days", "below"),
)
"""Comparisons in tables 2 and 3."""


class CetSweep(NamedTuple):
    """One of figures 7 to 10: values of a parameter, in the direction of the paper's text."""

    figure: int
    parameter: str
    values: Sequence[float]
    protocols: Sequence[str]
    claims: Sequence[CetClaim]

    def point(self, value: float) -> tuple[Field, dict[str, Protocol]]:
        if self.parameter == "alpha":
            return DEFAULTS, {"CET": CET(alpha=value)}
        protocols = {name: _SWEPT[name] for name in self.protocols}
        if self.parameter == "sensors":
            return replace(DEFAULTS, sensors=int(value)), protocols
        if self.parameter == "cells":
            return replace(DEFAULTS, cells=int(value)), protocols
        return replace(DEFAULTS, speed_max=value), protocols


_KEEPERS = (
    "in a field of small communities more events are put back, and keepers send them again, also to mules that have "
    "them"
)
SWEEPS = (
    CetSweep(7, "alpha", (0, 1, 2, 4, 6, 8, 10, 15, 20, 25), ("CET",), (CetClaim("CET", "delivery_ratio", "rises"),)),
    CetSweep(
        8,
        "speed_max",
        (1.0, 3.0, 5.0, 7.0, 9.0, 11.0),
        ("CET", "DG"),
        (
            CetClaim("CET", "delivery_ratio", "rises"),
            CetClaim("DG", "delivery_ratio", "rises"),
            CetClaim("CET, DG", "delivery_ratio", "above"),
            CetClaim("CET", "copies", "rises"),
            CetClaim(
                "DG", "copies", "stays", "at 1 m/s a mule enters fewer cells; from 3 m/s on there is no clear change"
            ),
            CetClaim("CET", "delay_s", "falls"),
            CetClaim("DG", "delay_s", "falls"),
        ),
    ),
    CetSweep(
        9,
        "sensors",
        (40, 60, 80, 100, 120, 140),
        ("CET", "DG", SKIPPING),
        (
            CetClaim("CET", "delivery_ratio", "rises"),
            CetClaim(
                "DG",
                "delivery_ratio",
                "rises",
                "more sensors share the rate of a mule; with a rate for each sensor it stays",
            ),
            CetClaim("CET, DG", "delivery_ratio", "above"),
            CetClaim("CET", "copies", "rises", _KEEPERS),
            CetClaim("DG", "copies", "falls"),
            CetClaim("CET", "delay_s", "falls"),
            CetClaim(
                "DG",
                "delay_s",
                "rises",
                "this is the time to the next visit, whatever other sensors do",
            ),
        ),
    ),
    CetSweep(
        10,
        "cells",
        (30, 25, 20, 15, 10),  # from short to long range
        ("CET", "DG", SKIPPING),
        (
            CetClaim("CET", "delivery_ratio", "rises"),
            CetClaim("DG", "delivery_ratio", "rises"),
            CetClaim("CET", "copies", "rises", _KEEPERS),
            CetClaim("DG", "copies", "rises"),
            CetClaim("CET, DG", "copies", "below"),
            CetClaim("CET", "delay_s", "falls"),
            CetClaim("DG", "delay_s", "falls"),
        ),
    ),
)

_SLOW = replace(DEFAULTS, speed_min=0.0)
INTERPRETATIONS: dict[str, tuple[Field, Protocol]] = {
    "CET, default": (DEFAULTS, CET()),
    "CET, speed from 0 (table 1)": (_SLOW, CET()),
    "CET, an owner sends once per contact": (DEFAULTS, CET(resend="contact")),
    "CET, the community skips events that the mule has": (DEFAULTS, CET(resend="missing")),
    "CET, paths of a lost root are cut, not rebuilt": (DEFAULTS, CET(lost_root="cut")),
    "CET, rate per receiver": (DEFAULTS, CET(rate_per="receiver")),
    "CET, rate per sender": (DEFAULTS, CET(rate_per="sender")),
    "CET, rate per link": (DEFAULTS, CET(rate_per="link")),
    "CET, events move to layer 1 in one step": (DEFAULTS, CET(hand_up="way")),
    "CET, relayed copies wait for their mule": (DEFAULTS, CET(left_behind="waits")),
    "CET, a mule may put back all events it received": (DEFAULTS, CET(stores="all")),
    "CET, put-back copies events": (DEFAULTS, CET(gives="copies")),
    "CET, put-back in every tick without a receipt": (DEFAULTS, CET(quiet_s=0.0)),
    "CET without put-back": (DEFAULTS, CET(put_back=False)),
    "DG, default": (DEFAULTS, DG()),
    "DG, speed from 0 (table 1)": (_SLOW, DG()),
    "DG, once per contact of mule and sensor": (DEFAULTS, DG(resend="contact")),
    "DG, once": (DEFAULTS, DG(resend="once")),
    "DG, rate per receiver": (DEFAULTS, DG(rate_per="receiver")),
    "DG, rate per sender": (DEFAULTS, DG(rate_per="sender")),
    "DG, rate per link": (DEFAULTS, DG(rate_per="link")),
    "DG, without beta": (DEFAULTS, DG(beta=inf)),
    "Epidemic, with the same queues and rate": (DEFAULTS, Epidemic(K=200, beta=2000.0)),
}


def replications_of(field: Field, protocol: Protocol, runs: int, *, until_death: bool = False) -> Iterator[Replication]:
    """Replications with the seeds 0 to runs - 1."""
    return (Replication(field, protocol, seed, until_death) for seed in range(runs))
