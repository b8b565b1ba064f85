"""The protocol as it is, and broken ones, each wrong in one way: the test of the tester."""

from __future__ import annotations

from dataclasses import dataclass, field

from roamcast.deliver.context import Rules
from roamcast.deliver.office import Office, Parts
from roamcast.lab.torture.broken import clerks, directories, machines, migrations, postings
from roamcast.lab.torture.disk import Disk

__all__ = ["SOUND", "VARIANTS", "Variant"]


@dataclass(frozen=True, slots=True)
class Variant:
    """An office made of other parts, or on another disk. `what` says what is wrong with it."""

    name: str
    what: str
    parts: Parts = field(default_factory=Parts)
    disk: type[Disk] = Disk
    kind: type[Office] = Office

    def office(self, domain: str, disk: Disk, rules: Rules) -> Office:
        return self.kind(domain, disk, rules, self.parts)


SOUND = Variant("sound", "The protocol as it is")


def _said(broken: type) -> str:
    return (broken.__doc__ or "").strip()


VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        *(
            Variant(name, _said(clerk), Parts(clerk=clerk))
            for name, clerk in (
                ("window", clerks.Window),
                ("highest-number", clerks.HighestNumber),
                ("no-hold-back", clerks.NoHoldBack),
                ("full-drops", clerks.DropsWhatIsFull),
                ("delete-on-pull", clerks.ForgetsWhatWasPulled),
                ("expire-silently", clerks.ExpiresSilently),
                ("expire-after-reading", clerks.ExpiresWhatWasRead),
            )
        ),
        *(
            Variant(name, _said(posting), Parts(posting=posting))
            for name, posting in (
                ("answer-for-others", postings.AnswersForOthers),
                ("forward-blindly", postings.PassesOnBlindly),
                ("forget-posted", postings.ForgetsWhatWasPosted),
                ("forget-refused", postings.ForgetsWhatWasRefused),
                ("take-all-below", postings.TakesAllBelow),
                ("post-once", postings.TriesOnce),
                ("take-while-arriving", postings.TakesTooEarly),
                ("no-friends", postings.MakesNoFriends),
                ("number-by-office", postings.NumbersByOffice),
            )
        ),
        *(
            Variant(name, _said(migration), Parts(migration=migration))
            for name, migration in (
                ("forward-before-register", migrations.ForwardsBeforeRegister),
                ("first-portion-is-enough", migrations.FirstPortionIsEnough),
                ("ranges-left-behind", migrations.RangesLeftBehind),
                ("places-left-behind", migrations.PlacesLeftBehind),
                ("numbers-left-behind", migrations.NumbersLeftBehind),
                ("part-left-behind", migrations.PartLeftBehind),
                ("parts-forgotten", migrations.PartsForgotten),
                ("friends-left-behind", migrations.FriendsLeftBehind),
                ("epoch-ignored", migrations.EpochIgnored),
                ("both-serve", migrations.BothServe),
                ("grant-while-arriving", migrations.GivesWhatItHasNot),
                ("past-portions", migrations.TakesThePast),
            )
        ),
        *(
            Variant(name, _said(directory), Parts(directory=directory))
            for name, directory in (
                ("home-untold", directories.HomeUntold),
                ("friends-untold", directories.FriendsUntold),
                ("tell-once", directories.TellsOnce),
                ("believe-anything", directories.BelievesAnything),
                ("one-answer-is-enough", directories.OneAnswerIsEnough),
            )
        ),
        *(
            Variant(name, _said(office), kind=office)
            for name, office in (
                ("full-disk-ignored", machines.IgnoresFullDisks),
                ("no-recovery", machines.NoRecovery),
                ("hand-over-forgotten", machines.FinishesNoHandOver),
            )
        ),
        Variant("acknowledge-before-sync", _said(machines.SyncsNowAndThen), disk=machines.SyncsNowAndThen),
    )
}
