"""The correct links and broken variants with one bug each, which show that the checks work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from roamcast.lab.torture.federation.broken import bindings, forwarding, visits, wants
from roamcast.lab.torture.federation.parts import SmallWants
from roamcast.lab.torture.federation.pipeline import ReferencePipeline
from roamcast.node.control.peer_wants import ControlParts
from roamcast.node.office.visits import check_visit
from roamcast.node.peers.forwarding import ForwardingQueues
from roamcast.node.peers.link_offsets import LinkOffsets

__all__ = ["CORRECT", "VARIANTS", "FederationVariant"]

VisitCheck = Callable[[str, str, int, str | None, int], None]


@dataclass(frozen=True, slots=True)
class FederationVariant:
    """Hosts built from other parts. `description` says what is wrong with them."""

    name: str
    description: str
    parts: ControlParts = field(default_factory=lambda: ControlParts(wants=SmallWants))
    queues: type[ForwardingQueues] = ForwardingQueues
    offsets: type[LinkOffsets] = LinkOffsets
    pipeline: type[ReferencePipeline] = ReferencePipeline
    check_visit: VisitCheck = check_visit


CORRECT = FederationVariant("correct", "The correct protocol")


def _describe(broken: object) -> str:
    return (broken.__doc__ or "").strip()


VARIANTS: dict[str, FederationVariant] = {
    variant.name: variant
    for variant in (
        *(
            FederationVariant(name, _describe(kind), ControlParts(wants=kind))
            for name, kind in (
                ("active-at-once", wants.SaysActiveAtOnce),
                ("send-changes-once", wants.SendsChangesOnce),
                ("believe-refusals", wants.BelievesRefusals),
                ("confirm-everything", wants.ConfirmsEverything),
                ("first-region", wants.KeepsFirstRegion),
                ("want-uncounted", wants.ForgetsOtherSubscriptions),
                ("trust-clocks", wants.TrustsClocks),
            )
        ),
        *(
            FederationVariant(name, _describe(links), ControlParts(SmallWants, links))
            for name, links in (
                ("past-sessions", wants.AcceptsPastSessions),
                ("any-base", wants.AcceptsAnyBase),
                ("add-snapshots", wants.AddsSnapshots),
                ("wants-not-stored", wants.StoresNothing),
            )
        ),
        *(
            FederationVariant(name, _describe(held), ControlParts(SmallWants, held=held))
            for name, held in (
                ("hold-nothing", bindings.HoldsNothing),
                ("hold-forever", bindings.HoldsForever),
                ("drop-silent-sources", bindings.DropsSilentSources),
            )
        ),
        *(
            FederationVariant(name, _describe(draining), ControlParts(SmallWants, draining=draining))
            for name, draining in (
                ("drain-at-once", wants.DrainsAtOnce),
                ("keep-positions", wants.IgnoresMoves),
            )
        ),
        *(
            FederationVariant(name, _describe(queues), queues=queues)
            for name, queues in (
                ("delete-when-taken", forwarding.DeletesWhenTaken),
                ("delete-whole-batch", forwarding.DeletesWholeBatch),
                ("drop-silently", forwarding.DropsSilently),
            )
        ),
        *(
            FederationVariant(name, _describe(offsets), offsets=offsets)
            for name, offsets in (
                ("forget-offsets", forwarding.ForgetsOffsets),
                ("ignore-missing", forwarding.IgnoresMissing),
            )
        ),
        *(
            FederationVariant(name, _describe(pipeline), pipeline=pipeline)
            for name, pipeline in (
                ("end-at-once", forwarding.EndsAtOnce),
                ("move-at-once", forwarding.MovesAtOnce),
                ("forget-positions", forwarding.ForgetsEarlierPositions),
                ("forward-everything", forwarding.ForwardsEverything),
                ("number-again", forwarding.NumbersAgain),
            )
        ),
        *(
            FederationVariant(name, _describe(check), check_visit=check)
            for name, check in (
                ("any-office-speaks", visits.believes_any_office),
                ("any-epoch-speaks", visits.believes_any_epoch),
                ("unheard-arrivals", visits.believes_unheard_arrivals),
            )
        ),
    )
}
