"""The correct protocol and broken variants with one bug each, which show that the checks work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from roamcast.deliver.context import OfficeLimits
from roamcast.deliver.messages import LetterBundle
from roamcast.deliver.office import Office, OfficeParts
from roamcast.deliver.posting import may_post
from roamcast.lab.torture.broken import address_books, filing, migrations, offices, postings
from roamcast.lab.torture.disk import FaultyDisk

__all__ = ["CORRECT", "VARIANTS", "Variant"]


@dataclass(frozen=True, slots=True)
class Variant:
    """An office built from other parts, or on another disk. `description` says what is wrong with it.

    `may_post` decides which bundles of other offices are accepted.
    """

    name: str
    description: str
    parts: OfficeParts = field(default_factory=OfficeParts)
    disk: type[FaultyDisk] = FaultyDisk
    kind: type[Office] = Office
    may_post: Callable[[str, LetterBundle], bool] = may_post

    def office(self, domain: str, disk: FaultyDisk, limits: OfficeLimits) -> Office:
        return self.kind(domain, disk, limits, self.parts)


CORRECT = Variant("correct", "The correct protocol")


def _describe(broken: object) -> str:
    return (broken.__doc__ or "").strip()


VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        *(
            Variant(name, _describe(kind), OfficeParts(filing=kind))
            for name, kind in (
                ("last-numbers-only", filing.RemembersLastNumbers),
                ("highest-number-only", filing.RemembersHighestNumber),
                ("no-hold-back", filing.HoldsNothingBack),
                ("drop-when-full", filing.DropsWhenFull),
                ("delete-on-pull", filing.DeletesOnPull),
                ("expire-silently", filing.ExpiresSilently),
                ("expire-after-reading", filing.ExpiresAfterReading),
            )
        ),
        *(
            Variant(name, _describe(posting), OfficeParts(posting=posting))
            for name, posting in (
                ("receipt-when-forwarding", postings.SendsReceiptWhenForwarding),
                ("forward-any-epoch", postings.ForwardsIgnoringEpochs),
                ("dequeue-on-posting", postings.DequeuesOnPosting),
                ("dequeue-rejected", postings.DequeuesRejected),
                ("receipt-covers-lower", postings.ReceiptCoversLowerNumbers),
                ("post-once", postings.PostsOnce),
                ("file-while-arriving", postings.FilesWhileArriving),
                ("no-friends", postings.AddsNoFriends),
                ("number-per-office", postings.NumbersPerOffice),
            )
        ),
        *(
            Variant(name, _describe(migration), OfficeParts(migration=migration))
            for name, migration in (
                ("drop-on-grant", migrations.DropsOnGrant),
                ("drop-after-first-chunk", migrations.DropsAfterFirstChunk),
                ("received-left-behind", migrations.LeavesReceivedBehind),
                ("offsets-left-behind", migrations.LeavesOffsetsBehind),
                ("sent-left-behind", migrations.LeavesSentBehind),
                ("first-chunk-only", migrations.SendsFirstChunkOnly),
                ("chunks-replaced", migrations.ReplacesChunks),
                ("friends-left-behind", migrations.LeavesFriendsBehind),
                ("grant-any-epoch", migrations.GrantsAnyEpoch),
                ("serve-while-leaving", migrations.ServesWhileLeaving),
                ("grant-while-arriving", migrations.GrantsWhileArriving),
                ("accept-past-chunks", migrations.AcceptsPastChunks),
            )
        ),
        *(
            Variant(name, _describe(kind), OfficeParts(address_book=kind))
            for name, kind in (
                ("home-not-notified", address_books.HomeNotNotified),
                ("friends-not-notified", address_books.FriendsNotNotified),
                ("notify-once", address_books.NotifiesOnce),
                ("ignore-epochs", address_books.IgnoresEpochs),
                ("stop-at-first-receipt", address_books.StopsAtFirstReceipt),
            )
        ),
        *(
            Variant(name, _describe(office), kind=office)
            for name, office in (
                ("full-disk-ignored", offices.IgnoresFullDisk),
                ("no-recovery", offices.NoRecovery),
                ("hand-over-forgotten", offices.ForgetsHandOvers),
            )
        ),
        Variant("any-office-posts", _describe(postings.accepts_any_letters), may_post=postings.accepts_any_letters),
        Variant("acknowledge-before-sync", _describe(offices.SyncsRarely), disk=offices.SyncsRarely),
    )
}
