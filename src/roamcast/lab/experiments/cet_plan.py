"""What the CET paper measured, what it found, and which runs that takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from roamcast.collect.simulation.field import Field
from roamcast.collect.simulation.protocols import CET, DG, Epidemic, Protocol
from roamcast.collect.simulation.replication import Replication

__all__ = [
    "BOTH", "DEFAULTS", "DEVIATIONS", "LIFETIMES", "PAPER", "READINGS", "SKIPPING", "SWEEPS", "TABLES", "Claim",
    "Sweep", "jobs_of",
]  # fmt: skip

DEFAULTS = Field()
BOTH: dict[str, Protocol] = {"CET": CET(), "DG": DG()}
SKIPPING = "CET, skipping"
"""The reading in which the community skips what the mule has: nearer to figures 9 and 10, further from table 2."""
_SWEPT: dict[str, Protocol] = {**BOTH, SKIPPING: CET(resend="missing")}

PAPER = {
    "CET": {"delivery_ratio": 0.910, "copies": 5.5, "delay_s": 193.8, "lifetime_days": 2.57},
    "DG": {"delivery_ratio": 0.470, "copies": 75.9, "delay_s": 615.5, "lifetime_days": 6.04},
}
"""Tables 2 and 3."""

DEVIATIONS = {
    "CET copies": "nobody knows what a mule wants before it has it: an event is sent to nine of ten mules, and keepers "
    "send what was put back once more; no reading comes below nine",
    "CET delay_s": "fields differ much in how many sensors their largest community has",
    "CET lifetime_days": "fields differ much in where ways meet, and there the first sensor dies",
    "DG delivery_ratio": "no reading that fits delay, copies and lifetime comes near; with speeds from 0, as table 1 "
    "says, it is nearer, but CET then loses a tenth",
    "DG copies": "a mule hears 20 events a second in all; where it hears as many from each sensor (rate_per = sender) "
    "it is nearer. How often a sensor repeats itself to a mule in reach is open too: see the readings",
    "DG delay_s": "it is the time to the next visit of a mule; with speeds from 0, as table 1 says, it is nearer",
    "DG lifetime_days": "it goes with the number of sends: see the copies",
}
"""Why figures of tables 2 and 3 are not ours, where they are not."""

LIFETIMES = {"CET": replace(DEFAULTS, duration_s=4 * 86_400.0), "DG": replace(DEFAULTS, duration_s=9 * 86_400.0)}
"""Long enough for most; a run in which nobody dies is given more."""


class Claim(NamedTuple):
    """What the paper says of a figure: how `what` of a protocol changes from the first point to the last.

    `change`: `rises`, `falls` or `stays`; or, with both protocols, `above` or `below`: CET beside DG at each point.
    `why` says how it comes that it is otherwise here, where that is known.
    """

    protocol: str
    what: str
    change: str
    why: str = ""


TABLES = (
    Claim("CET, DG", "delivery_ratio", "above"),
    Claim("CET, DG", "copies", "below"),
    Claim("CET, DG", "delay_s", "below"),
    Claim("CET, DG", "lifetime_days", "below"),
)
"""What tables 2 and 3 say of the two beside each other."""


class Sweep(NamedTuple):
    """One of figures 7 to 10: fields or protocols by a parameter, in the direction that the paper speaks of."""

    figure: int
    parameter: str
    values: Sequence[float]
    protocols: Sequence[str]
    claims: Sequence[Claim]

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
    "where the field falls apart into small communities, more events are put back, and keepers send them too, also to "
    "mules that have them"
)
SWEEPS = (
    Sweep(7, "alpha", (0, 1, 2, 4, 6, 8, 10, 15, 20, 25), ("CET",), (Claim("CET", "delivery_ratio", "rises"),)),
    Sweep(
        8,
        "speed_max",
        (1.0, 3.0, 5.0, 7.0, 9.0, 11.0),
        ("CET", "DG"),
        (
            Claim("CET", "delivery_ratio", "rises"),
            Claim("DG", "delivery_ratio", "rises"),
            Claim("CET, DG", "delivery_ratio", "above"),
            Claim("CET", "copies", "rises"),
            Claim(
                "DG", "copies", "stays", "at 1 m/s a mule enters fewer cells; from 3 m/s on there is no marked change"
            ),
            Claim("CET", "delay_s", "falls"),
            Claim("DG", "delay_s", "falls"),
        ),
    ),
    Sweep(
        9,
        "sensors",
        (40, 60, 80, 100, 120, 140),
        ("CET", "DG", SKIPPING),
        (
            Claim("CET", "delivery_ratio", "rises"),
            Claim(
                "DG",
                "delivery_ratio",
                "rises",
                "more sensors share what a mule can receive in a second; where each has the rate for itself it stays",
            ),
            Claim("CET, DG", "delivery_ratio", "above"),
            Claim("CET", "copies", "rises", _KEEPERS),
            Claim("DG", "copies", "falls"),
            Claim("CET", "delay_s", "falls"),
            Claim("DG", "delay_s", "rises", "it is the time to the next visit of a mule, whoever else there is"),
        ),
    ),
    Sweep(
        10,
        "cells",
        (30, 25, 20, 15, 10),  # from short to long reach
        ("CET", "DG", SKIPPING),
        (
            Claim("CET", "delivery_ratio", "rises"),
            Claim("DG", "delivery_ratio", "rises"),
            Claim("CET", "copies", "rises", _KEEPERS),
            Claim("DG", "copies", "rises"),
            Claim("CET, DG", "copies", "below"),
            Claim("CET", "delay_s", "falls"),
            Claim("DG", "delay_s", "falls"),
        ),
    ),
)

_SLOW = replace(DEFAULTS, speed_min=0.0)
READINGS: dict[str, tuple[Field, Protocol]] = {
    "CET as taken": (DEFAULTS, CET()),
    "CET, speed from 0 (table 1)": (_SLOW, CET()),
    "CET, an own event once per contact": (DEFAULTS, CET(resend="contact")),
    "CET, the community skips what the mule has": (DEFAULTS, CET(resend="missing")),
    "CET, paths of a lost root are cut, not laid anew": (DEFAULTS, CET(lost_root="cut")),
    "CET, a sensor has the rate for each mule and neighbour": (DEFAULTS, CET(rate_per="receiver")),
    "CET, whoever receives has the rate for each sensor": (DEFAULTS, CET(rate_per="sender")),
    "CET, each link has the rate for itself": (DEFAULTS, CET(rate_per="link")),
    "CET, events climb all their way in one step": (DEFAULTS, CET(hand_up="way")),
    "CET, what is on its way up waits for its mule": (DEFAULTS, CET(left_behind="waits")),
    "CET, a mule may put back all that it has heard": (DEFAULTS, CET(stores="all")),
    "CET, copies are put back": (DEFAULTS, CET(gives="copies")),
    "CET, put-back in every tick with nothing received": (DEFAULTS, CET(quiet_s=0.0)),
    "CET without put-back": (DEFAULTS, CET(put_back=False)),
    "DG as taken": (DEFAULTS, DG()),
    "DG, speed from 0 (table 1)": (_SLOW, DG()),
    "DG, once per contact of mule and sensor": (DEFAULTS, DG(resend="contact")),
    "DG, once ever": (DEFAULTS, DG(resend="once")),
    "DG, a sensor has the rate for each mule": (DEFAULTS, DG(rate_per="receiver")),
    "DG, a mule has the rate for each sensor": (DEFAULTS, DG(rate_per="sender")),
    "DG, each link has the rate for itself": (DEFAULTS, DG(rate_per="link")),
    "DG, beta does not apply": (DEFAULTS, DG(beta=inf)),
    "Epidemic, queues and rate as the others": (DEFAULTS, Epidemic(K=200, beta=2000.0)),
}


def jobs_of(field: Field, protocol: Protocol, runs: int, *, until_death: bool = False) -> Iterator[Replication]:
    """Seeds 0 to runs - 1."""
    return (Replication(field, protocol, seed, until_death) for seed in range(runs))
