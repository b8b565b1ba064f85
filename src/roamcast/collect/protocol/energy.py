"""The radio model, and what a node has left of its energy."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EnergyAccount", "Radio"]


@dataclass(frozen=True, slots=True)
class Radio:
    """The first-order radio model of Heinzelman et al. 2002 with free-space loss, in joules.

    Only transfers of events cost energy, and only sensors pay.
    """

    initial_j: float = 10.0
    e_elec: float = 50e-9
    """E_elec, joules per bit."""
    e_fs: float = 10e-12
    """epsilon_fs, joules per bit and square metre."""

    def send(self, bits: float, square: float) -> float:
        """Energy for sending bits over a distance, given as its square."""
        return bits * self.e_elec + bits * self.e_fs * square

    def receive(self, bits: float) -> float:
        """Energy for receiving bits."""
        return bits * self.e_elec


@dataclass(slots=True)
class EnergyAccount:
    """What a node has left, in joules. A node goes on with nothing left: its battery decides when it stops."""

    radio: Radio
    joules: float

    def pay_send(self, bits: float, square: float) -> None:
        """Pay for sending bits over a distance, given as its square in square metres."""
        self.joules -= self.radio.send(bits, square)

    def pay_receive(self, bits: float) -> None:
        """Pay for receiving bits."""
        self.joules -= self.radio.receive(bits)
