"""What scenarios need to be installed."""

from __future__ import annotations

import subprocess
import sys

from roamcast.lab.scenarios import SCENARIOS


def test_all_but_relief_run_without_the_packages_of_the_lab() -> None:
    """`roamcast up` asks for the extra `lab` only if the scenario needs it."""
    code = f"""
import sys
sys.modules.update(dict.fromkeys(["scipy", "matplotlib", "nats"]))
from roamcast.lab.scenarios import load_scenario
for name in {[name for name in SCENARIOS if name != "relief"]}:
    load_scenario(name)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
