"""One replication of an experiment: a job that can run anywhere, at any time, and always gives the same figures."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from roamcast.collect.simulation.energy import Radio
from roamcast.collect.simulation.field import Field, draw
from roamcast.collect.simulation.outcome import figures
from roamcast.collect.simulation.protocols import Protocol
from roamcast.collect.simulation.simulate import simulate

__all__ = ["Job", "run_job"]

_LONGEST_S = 400 * 86_400.0


@dataclass(frozen=True, slots=True)
class Job:
    """The world is that of the seed: jobs with the same field and seed can be compared in pairs."""

    field: Field
    protocol: Protocol
    seed: int
    until_death: bool = False
    radio: Radio = dataclasses.field(default_factory=Radio)

    @property
    def digest(self) -> str:
        """Its name: of what it does, and of the code that does it."""
        return hashlib.sha256(f"{_edition()}\n{self!r}".encode()).hexdigest()[:32]


def run_job(job: Job) -> Mapping[str, float | None]:
    """The figures of a run. One to the first death is given twice the time until somebody dies."""
    what = job.field
    while True:
        outcome = simulate(draw(what, job.seed), job.protocol, job.radio, until_death=job.until_death)
        if not job.until_death or outcome.first_death_s is not None or what.duration_s > _LONGEST_S:
            return asdict(figures(outcome, job.radio.initial_j))
        what = replace(what, duration_s=2 * what.duration_s)


@cache
def _edition() -> str:
    """Of the simulator's code: figures of another edition are not these."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
