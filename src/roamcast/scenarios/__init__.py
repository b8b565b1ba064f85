"""Small worlds that drive the public API, and nothing but the public API."""

from collections.abc import Callable, Mapping

from roamcast.scenarios.city import City
from roamcast.scenarios.conference import Conference
from roamcast.scenarios.port import Scenario
from roamcast.scenarios.relief import Relief
from roamcast.scenarios.roaming import Roaming

__all__ = ["SCENARIOS", "Scenario"]

SCENARIOS: Mapping[str, Callable[[], Scenario]] = {
    "city": City, "conference": Conference, "relief": Relief, "roaming": Roaming,
}  # fmt: skip
