"""Compile the kernels of the field simulation, so that no test has to wait for it: it takes longer than any of them."""

from __future__ import annotations

from roamcast.lab.scenarios.relief_area import ReliefArea, ReliefShift

if __name__ == "__main__":
    ReliefShift(ReliefArea.of(7), 7)
