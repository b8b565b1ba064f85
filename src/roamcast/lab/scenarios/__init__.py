"""Small worlds that drive the public API, and nothing but the public API."""

from collections.abc import Callable, Mapping

from roamcast.lab.scenarios.city import City
from roamcast.lab.scenarios.conference import Conference
from roamcast.lab.scenarios.port import Scenario
from roamcast.lab.scenarios.relief import Relief
from roamcast.lab.scenarios.roaming import Roaming

__all__ = ["SCENARIOS", "Scenario"]

SCENARIOS: Mapping[str, Callable[[], Scenario]] = {
    "city": City, "conference": Conference, "relief": Relief, "roaming": Roaming,
}  # fmt: skip
