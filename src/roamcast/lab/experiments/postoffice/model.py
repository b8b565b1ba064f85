"""The paper's cost model of post offices: formulas (1) to (3)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Costs", "Mix", "migration_messages"]


@dataclass(frozen=True, slots=True)
class Costs:
    """Sizes of messages in kilobytes, bandwidths in kilobytes per unit of time; as in the paper's simulation."""

    ctl: float = 1.0
    mail: float = 4.0
    inter: float = 1.0
    intra: float = 10.0

    @property
    def t_ctl(self) -> float:
        return self.ctl / self.inter

    @property
    def t_ml(self) -> float:
        return self.mail / self.inter

    @property
    def t_intra(self) -> float:
        """A request inside a domain and the letter that answers it."""
        return (self.ctl + self.mail) / self.intra


@dataclass(frozen=True, slots=True)
class Mix:
    """How letters find their receivers.

    Probabilities: `rho1`, the receiver is in the sender's domain; `rho2`, in its address book; otherwise by the home.
    `q`: the receiver is between two domains.
    """

    rho1: float
    rho2: float
    q: float

    def time(self, costs: Costs) -> float:
        """Formula (1): expected time of one communication."""
        ctl, ml, intra = costs.t_ctl, costs.t_ml, costs.t_intra
        q = self.q
        by_book = (1 - q) * (ml + intra) + q * (2 * ml + intra)
        by_home = (1 - q) * (2 * ctl + ml + intra) + q * (2 * ctl + 2 * ml + intra)
        return self.rho1 * intra + self.rho2 * by_book + (1 - self.rho1 - self.rho2) * by_home

    def traffic(self, costs: Costs) -> float:
        """Formula (2): expected kilobytes of one communication. The last q is missing in print."""
        ctl, mail, q = costs.ctl, costs.mail, self.q
        by_book = (1 - q) * (ctl + 2 * mail) + q * (ctl + 3 * mail)
        by_home = (1 - q) * (3 * ctl + 2 * mail) + q * (3 * ctl + 3 * mail)
        return self.rho1 * (ctl + mail) + self.rho2 * by_book + (1 - self.rho1 - self.rho2) * by_home


def migration_messages(friends: float) -> float:
    """Formula (3) in messages: each friend domain, one deregistration, one update of the home."""
    return friends + 2
