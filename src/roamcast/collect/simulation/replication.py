"""One replication of an experiment: a deterministic run that can be executed anywhere."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from roamcast.collect.protocol.energy import Radio
from roamcast.collect.protocol.rules import Protocol
from roamcast.collect.simulation.field import Field, draw_world
from roamcast.collect.simulation.results import run_figures
from roamcast.collect.simulation.simulate import simulate

__all__ = ["Replication", "run_replication"]

_MAX_DURATION_S = 400 * 86_400.0


@dataclass(frozen=True, slots=True)
class Replication:
    """A run of a protocol in the world of a seed. Those with the same field and seed can be compared in pairs."""

    field: Field
    protocol: Protocol
    seed: int
    until_death: bool = False
    radio: Radio = dataclasses.field(default_factory=Radio)

    @property
    def digest(self) -> str:
        """Identifies the replication and the version of the simulation code."""
        return hashlib.sha256(f"{_code_digest()}\n{self!r}".encode()).hexdigest()[:32]


def run_replication(replication: Replication) -> Mapping[str, float | None]:
    """Run it and return its figures. With `until_death`, double the duration until a sensor dies."""
    field = replication.field
    while True:
        result = simulate(
            draw_world(field, replication.seed),
            replication.protocol,
            replication.radio,
            until_death=replication.until_death,
        )
        if not replication.until_death or result.first_death_s is not None or field.duration_s > _MAX_DURATION_S:
            return asdict(run_figures(result, replication.radio.initial_j))
        field = replace(field, duration_s=2 * field.duration_s)


@cache
def _code_digest() -> str:
    """Digest of the code of the stage. Another version may give other figures."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
