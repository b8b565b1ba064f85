"""The correct protocol and broken variants with one bug each, which show that the checks work."""

from __future__ import annotations

from dataclasses import dataclass

from roamcast.collect.protocol.field_node import FieldNode
from roamcast.collect.protocol.link import Link
from roamcast.collect.protocol.mule import Base, Mule
from roamcast.lab.torture.field import broken

__all__ = ["CORRECT", "VARIANTS", "FieldVariant"]


@dataclass(frozen=True, slots=True)
class FieldVariant:
    """Stations built from other parts. `description` says what is wrong with them.

    `sends_first`: frames are sent before the state is stored.
    """

    name: str
    description: str
    node: type[FieldNode] = FieldNode
    mule: type[Mule] = Mule
    base: type[Base] = Base
    sends_first: bool = False


CORRECT = FieldVariant("correct", "The correct protocol")


def _describe(broken: object) -> str:
    return (broken.__doc__ or "").strip()


def _with_link(name: str, link: type[Link]) -> FieldVariant:
    """All stations with another link."""
    node, mule, base = (type(kind.__name__, (kind,), {"link_type": link}) for kind in (FieldNode, Mule, Base))
    return FieldVariant(name, _describe(link), node, mule, base)


VARIANTS: dict[str, FieldVariant] = {
    variant.name: variant
    for variant in (
        *(
            FieldVariant(name, _describe(node), node=node)
            for name, node in (
                ("forget-queue", broken.ForgetsQueue),
                ("number-again", broken.NumbersAgain),
                ("forget-energy", broken.ForgetsEnergy),
                ("forget-statuses", broken.ForgetsStatuses),
                ("relay-once", broken.RelaysOnce),
                ("send-once", broken.SendsOnce),
                ("drop-uncounted", broken.DropsUncounted),
                ("drop-passing", broken.DropsPassing),
                ("accept-when-full", broken.AcceptsWhenFull),
                ("expire-early", broken.DropsAtOnce),
            )
        ),
        *(
            FieldVariant(name, _describe(mule), mule=mule)
            for name, mule in (
                ("forget-cargo", broken.ForgetsCargo),
                ("hand-over-once", broken.HandsOverOnce),
                ("carry-too-much", broken.CarriesTooMuch),
            )
        ),
        *(
            _with_link(name, link)
            for name, link in (
                ("trust-frames", broken.TrustsFrames),
                ("forget-age", broken.ForgetsAge),
                ("ignore-skew", broken.IgnoresSkew),
                ("acknowledge-refused", broken.AcknowledgesRefused),
                ("large-frames", broken.LargeFrames),
            )
        ),
        FieldVariant("forget-seen", _describe(broken.ForgetsSeen), base=broken.ForgetsSeen),
        FieldVariant("send-before-storing", "Frames are sent before the state is stored", sends_first=True),
    )
}
