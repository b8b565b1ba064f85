"""What can be tortured: post offices, the links between data folders, and the nodes and mules of sensor fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from roamcast.errors import InputError
from roamcast.lab.torture import crashes, simulation, variants
from roamcast.lab.torture.crashes import CrashPlan, CrashPoint
from roamcast.lab.torture.federation import points as federation_points
from roamcast.lab.torture.federation import simulation as federation_simulation
from roamcast.lab.torture.federation import variants as federation_variants
from roamcast.lab.torture.field import kernels as field_kernels
from roamcast.lab.torture.field import points as field_points
from roamcast.lab.torture.field import simulation as field_simulation
from roamcast.lab.torture.field import variants as field_variants

__all__ = ["DELIVER", "FEDERATE", "FIELD", "KERNELS", "TORTURES", "Simulation", "Torture", "Variant"]


class Variant(Protocol):
    """A protocol, and what is wrong with it."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...


class Simulation(Protocol):
    """One run."""

    now: int
    plan: CrashPlan

    def run(self) -> None: ...

    @property
    def counts(self) -> Mapping[str, int]:
        """What happened, for the report."""

    @property
    def violations(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class Torture:
    """A kind of simulation. `least` are the counts of which a report has the minimum of all seeds."""

    name: str
    correct: Variant
    variants: Mapping[str, Variant]
    points: Sequence[CrashPoint]
    least: Sequence[str]
    simulate: Callable[..., Simulation]
    """With a seed, a variant, and optionally an observer."""

    def variant(self, name: str | None) -> Any:
        """Raises InputError."""
        if name is None or name == self.correct.name:
            return self.correct
        if name not in self.variants:
            raise InputError(f"there is no variant {name!r}", where="--variant", hint="list them with --list-variants")
        return self.variants[name]


DELIVER = Torture(
    "deliver",
    variants.CORRECT,
    variants.VARIANTS,
    crashes.POINTS,
    ("letters", "migrations", "crashes"),
    simulation.TortureSimulation,
)
FEDERATE = Torture(
    "federate",
    federation_variants.CORRECT,
    federation_variants.VARIANTS,
    federation_points.POINTS,
    ("events", "letters", "crashes"),
    federation_simulation.FederationSimulation,
)
FIELD = Torture(
    "field",
    field_variants.CORRECT,
    field_variants.VARIANTS,
    field_points.POINTS,
    ("events", "frames", "crashes"),
    field_simulation.FieldSimulation,
)
KERNELS = Torture("kernels", field_kernels.AS_COMPILED, {}, (), ("events", "transfers"), field_kernels.KernelComparison)
TORTURES: Mapping[str, Torture] = {torture.name: torture for torture in (DELIVER, FEDERATE, FIELD, KERNELS)}
