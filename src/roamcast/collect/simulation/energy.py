"""The first-order radio model of Heinzelman et al. 2002, with free-space loss."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Radio"]


@dataclass(frozen=True, slots=True)
class Radio:
    """What a sensor pays, in joules, and with how much it begins. Only events cost; mules pay nothing."""

    initial_j: float = 10.0
    e_elec: float = 50e-9
    """E_elec, joules a bit."""
    e_fs: float = 10e-12
    """epsilon_fs, joules a bit and square metre."""

    def send(self, bits: float, square: float) -> float:
        """For sending so many bits over a distance with this square."""
        return bits * self.e_elec + bits * self.e_fs * square

    def receive(self, bits: float) -> float:
        return bits * self.e_elec
