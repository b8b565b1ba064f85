"""The protocol as it is, and broken ones, each wrong in one way: the test of the tester."""

from __future__ import annotations

from dataclasses import dataclass, field

from roamcast.deliver.desk import Rules
from roamcast.deliver.office import Office, Parts
from roamcast.torture.disk import Disk

__all__ = ["SOUND", "VARIANTS", "Variant"]


@dataclass(frozen=True, slots=True)
class Variant:
    """An office made of other parts, or on another disk. `what` says what is wrong with it."""

    name: str
    what: str
    parts: Parts = field(default_factory=Parts)
    disk: type[Disk] = Disk
    kind: type[Office] = Office

    def office(self, domain: str, disk: Disk, rules: Rules) -> Office:
        return self.kind(domain, disk, rules, self.parts)


SOUND = Variant("sound", "The protocol as it is")
VARIANTS: dict[str, Variant] = {}
