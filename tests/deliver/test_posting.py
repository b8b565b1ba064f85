"""Posting letters from office to office."""

from __future__ import annotations

import pytest
from post import ANN, BEN, EVE, PostNetwork

from roamcast.deliver.context import OfficeLimits
from roamcast.deliver.messages import AddressUpdate, BundleReceipt, LocationQuery, WorkDue
from roamcast.deliver.messages import LetterBundle as PostMessage
from roamcast.deliver.port import LetterKey, PendingWork, WorkKind
from roamcast.deliver.requests import Deposit, Deposited, LetterSent, SendLetter
from roamcast.errors import CapacityError, ConflictError, ElsewhereError, InputError, NotFoundError
from roamcast.model import Letter


@pytest.fixture
def post() -> PostNetwork:
    post = PostNetwork()
    post.register(ANN, BEN, EVE)
    return post


def test_letters_inside_a_domain_need_no_network(post: PostNetwork) -> None:
    """Case 1 of MailSender."""
    post.register("north.pier.ida")
    post.send("north", ANN, "north.pier.ida", "hello")
    assert not post.in_flight
    assert post.bodies("north", "north.pier.ida") == ["hello"]


def test_unknown_receiver_is_looked_up_at_its_home(post: PostNetwork) -> None:
    """Case 3: query, reply, post. The second letter goes there directly, which is case 2."""
    post.send("north", ANN, BEN, "one")
    assert [type(message) for _, _, message in post.in_flight] == [LocationQuery]
    post.carry()
    assert post.bodies("south", BEN) == ["one"]
    post.send("north", ANN, BEN, "two")
    assert [type(message) for _, _, message in post.in_flight] == [PostMessage]
    post.carry()
    assert post.bodies("south", BEN) == ["one", "two"]


def test_letter_is_posted_until_there_is_a_receipt(post: PostNetwork) -> None:
    """It is filed once, whatever is lost."""
    post.send("north", ANN, BEN, "one")
    post.carry(lambda message: not isinstance(message, PostMessage))
    assert post.stores["north"].queue_length(BEN) == 1
    post.ring("north")
    post.carry(lambda message: not isinstance(message, BundleReceipt))
    assert post.stores["north"].queue_length(BEN) == 1
    post.ring("north")
    post.carry()
    assert post.stores["north"].queue_length(BEN) == 0
    assert post.bodies("south", BEN) == ["one"]


def test_retry_delays_grow_and_restart_after_a_receipt(post: PostNetwork) -> None:
    """Exponential backoff; the caller adds jitter between two bounds."""
    post.send("north", ANN, BEN, "one")
    work = PendingWork(WorkKind.POST, BEN)
    waits = []
    for _ in range(7):
        wake = post.timers["north"][work]
        assert wake.earliest < wake.latest
        waits.append(wake.earliest)
        post.lose()
        post.ring("north")
    assert waits == [250_000, 500_000, 1_000_000, 2_000_000, 4_000_000, 5_000_000, 5_000_000]
    post.carry()
    post.send("north", ANN, BEN, "two")
    assert post.timers["north"][work].earliest == 250_000


def test_posting_continues_after_a_crash(post: PostNetwork) -> None:
    post.send("north", ANN, BEN, "one", "two")
    post.lose()
    post.restart("north")
    post.ring("north")
    post.carry()
    assert post.bodies("south", BEN) == ["one", "two"]


def test_many_letters_go_in_bundles(post: PostNetwork) -> None:
    """One bundle at a time, all letters in the end, in order."""
    post.send("north", ANN, BEN, *map(str, range(10)))
    sizes = []

    def watch(message: object) -> bool:
        if isinstance(message, PostMessage):
            sizes.append(len(message.letters))
        return True

    post.carry(watch)
    assert max(sizes) == 3
    assert post.bodies("south", BEN) == [str(number) for number in range(10)]


def test_letter_numbers_are_dense(post: PostNetwork) -> None:
    """The next one is accepted, an earlier one is a duplicate, a later one is refused."""
    assert LetterSent(ANN, ANN, 1, True) in post.tell("north", SendLetter(ANN, ANN, "one", 1))
    assert post.tell("north", SendLetter(ANN, ANN, "one", 1)) == [LetterSent(ANN, ANN, 1, False)]
    with pytest.raises(ConflictError, match="next letter to this receiver has number 2"):
        post.tell("north", SendLetter(ANN, ANN, "three", 3))
    assert LetterSent(ANN, ANN, 2, True) in post.tell("north", SendLetter(ANN, ANN, "two"))
    assert post.bodies("north", ANN) == ["one", "two"]


def test_sender_must_be_served_here(post: PostNetwork) -> None:
    with pytest.raises(ElsewhereError):
        post.send("south", ANN, BEN, "one")


def test_invalid_or_unknown_local_receiver_is_refused(post: PostNetwork) -> None:
    with pytest.raises(InputError):
        post.send("north", ANN, "somebody", "one")
    with pytest.raises(NotFoundError):
        post.send("north", ANN, "north.pier.nobody", "one")


def test_letters_wait_for_the_registration_of_their_receiver(post: PostNetwork) -> None:
    post.send("north", ANN, "south.dock.new", "early")
    post.carry()
    assert post.stores["north"].queue_length("south.dock.new") == 1
    post.register("south.dock.new")
    post.ring("north")
    post.carry()
    assert post.bodies("south", "south.dock.new") == ["early"]


def test_full_queue_refuses_letters(post: PostNetwork) -> None:
    """The sender keeps them; nobody else is affected."""
    small = PostNetwork(limits=type(post.limits)(queue_letters=2))
    small.register(ANN, BEN, EVE)
    small.send("north", ANN, BEN, "one", "two")
    with pytest.raises(CapacityError):
        small.send("north", ANN, BEN, "three")
    small.send("north", ANN, EVE, "one")


def test_unavailable_office_delays_nobody_else(post: PostNetwork) -> None:
    """A letter between other offices needs no timer and one message, as always."""
    post.send("north", ANN, BEN, "before")
    post.carry()
    post.dead.add("west")
    clock, minute = 0, 60_000_000
    due: dict[PendingWork, int] = {}
    sent = 0
    while clock < minute:
        post.send("north", ANN, EVE, "waits")
        post.carry()
        due |= {work: clock + wake.earliest for work, wake in post.timers["north"].items() if work not in due}
        clock = max(clock, min(due.values()))
        work = min(due, key=lambda it: due[it])
        del due[work], post.timers["north"][work]
        post.tell("north", WorkDue(work))
        sent += 1
        post.send("north", ANN, BEN, str(sent))
        between = [type(message) for source, to, message in post.in_flight if "west" not in (source, to)]
        assert between == [PostMessage]
        post.carry()
        assert [filed.letter.body for filed in post.pull("south", BEN, after=sent)] == [str(sent)]
    assert post.stores["north"].queue_length(EVE) == sent > 10


def test_queued_letters_of_one_sender_are_limited(post: PostNetwork) -> None:
    """To all receivers together; letters of others are accepted."""
    small = PostNetwork(limits=type(post.limits)(unposted_letters=2))
    small.register(ANN, BEN, "north.pier.ida")
    small.send("north", ANN, BEN, "one")
    small.send("north", ANN, EVE, "one")
    with pytest.raises(CapacityError, match="of this sender") as caught:
        small.send("north", ANN, BEN, "two")
    assert caught.value.hint
    small.send("north", ANN, "north.pier.ida", "here")
    small.send("north", "north.pier.ida", BEN, "one")
    small.carry()
    small.send("north", ANN, BEN, "two")
    small.carry()
    assert small.bodies("south", BEN) == ["one", "one", "two"]


def test_deposits_are_never_refused(post: PostNetwork) -> None:
    """The pipeline has nowhere else to put them."""
    small = PostNetwork(limits=type(post.limits)(queue_letters=1, unposted_letters=1))
    letters = tuple(Letter(EVE, "pipeline", number, "{}") for number in (1, 2, 3))
    assert small.tell("north", Deposit(letters))[-1] == Deposited(0, 3)


def test_receipt_counts_for_the_letters_it_names_only(post: PostNetwork) -> None:
    """A rejected letter stays queued."""
    small = PostNetwork(limits=type(post.limits)(bundle_letters=5, held_letters=1))
    small.register(ANN, BEN)
    early = tuple(Letter(BEN, "pipeline", number, str(number)) for number in (2, 3, 4))
    small.tell("north", Deposit((Letter(BEN, "other", 1, "other"), *early)))
    small.carry()
    assert small.stores["north"].queue_length(BEN) == 2
    small.tell("west", Deposit((Letter(BEN, "pipeline", 1, "1"),)))
    small.carry()
    small.ring("north")
    small.carry()
    assert small.bodies("south", BEN) == ["other", "1", "2", "3", "4"]


def test_rejected_letters_do_not_block_the_queue(post: PostNetwork) -> None:
    """Two offices each have a bundle of early letters in front of what the other's letters wait for."""
    small = PostNetwork(limits=type(post.limits)(bundle_letters=2, held_letters=1))
    small.register(BEN)

    def batch(*keys: tuple[str, int]) -> Deposit:
        return Deposit(tuple(Letter(BEN, sender, number, f"{sender}{number}") for sender, number in keys))

    small.tell("north", batch(("a", 2), ("a", 3), ("b", 1)))
    small.tell("west", batch(("b", 2), ("b", 3), ("c", 2), ("a", 1), ("c", 1)))
    small.carry()
    for _ in range(8):
        for domain in small.offices:
            small.ring(domain)
            small.carry()
    assert sorted(small.bodies("south", BEN)) == ["a1", "a2", "a3", "b1", "b2", "b3", "c1", "c2"]


def test_bundle_is_forwarded_to_a_later_epoch_only(post: PostNetwork) -> None:
    """Otherwise it is ignored, so there are no loops."""
    letter = Letter(BEN, "pipeline", 1, "x")
    post.arrive("west", BEN)
    post.carry()
    assert post.stores["south"].last_known(BEN).office == "west"
    post.tell("south", PostMessage(BEN, (letter,), "north", known_epoch=1))
    forwarded = post.only(PostMessage)
    assert (post.in_flight[-1][1], forwarded.known_epoch) == ("west", 2)
    post.lose()
    post.tell("south", PostMessage(BEN, (letter,), "north", known_epoch=2))
    assert not post.in_flight


def test_forwarded_bundle_gets_its_receipt_from_the_last_office(post: PostNetwork) -> None:
    """The origin then posts there directly."""
    post.send("north", ANN, BEN, "one")
    post.carry()
    post.arrive("west", BEN)
    post.carry(lambda message: not (isinstance(message, AddressUpdate) and message.friend))
    assert post.stores["north"].last_known(BEN).office == "south"
    post.send("north", ANN, BEN, "two")
    post.carry()
    assert post.stores["north"].last_known(BEN).office == "west"
    post.send("north", ANN, BEN, "three")
    assert post.in_flight[-1][1] == "west"
    post.carry()
    assert post.bodies("west", BEN) == ["one", "two", "three"]


def test_home_names_the_new_office_if_the_old_one_is_down() -> None:
    post = PostNetwork(("north", "south", "west", "east"))
    post.register(ANN, EVE)
    post.arrive("south", EVE)
    post.carry()
    post.send("north", ANN, EVE, "one")
    post.carry()
    post.arrive("east", EVE)
    post.carry(lambda message: not (isinstance(message, AddressUpdate) and message.friend))
    post.dead.add("south")
    post.send("north", ANN, EVE, "two")
    post.carry()
    assert post.bodies("east", EVE) == ["one"]
    post.ring("north")
    post.carry()
    assert post.bodies("east", EVE) == ["one", "two"]


def test_full_mailbox_is_cheap_however_long_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt or acknowledgement reads a few queued letters, not all."""
    small = PostNetwork(limits=OfficeLimits(bundle_letters=3, mailbox_letters=5, held_letters=2))
    small.register(ANN)
    letters = tuple(Letter(ANN, "pipeline", number, str(number)) for number in range(1, 301))
    small.tell("north", Deposit(letters))
    store, read_counts = small.stores["north"], []
    queued = store.queued

    def counted(receiver: str, after: LetterKey, limit: int) -> list[Letter]:
        letters_queued = queued(receiver, after, limit)
        read_counts.append(len(letters_queued))
        return letters_queued

    monkeypatch.setattr(store, "queued", counted)
    small.ring("north")
    small.acknowledge("north", ANN, 1)
    assert sum(read_counts) < 30


def test_all_letters_queued_for_a_full_mailbox_arrive() -> None:
    """As its owner reads, in whatever order they are queued."""
    small = PostNetwork(limits=OfficeLimits(bundle_letters=3, mailbox_letters=5, held_letters=2))
    small.register(ANN)
    keys = [(sender, number) for sender in "abcdefghijklm" for number in range(1, 8)]
    small.tell("north", Deposit(tuple(Letter(ANN, sender, number, f"{sender}{number}") for sender, number in keys)))
    read: list[str] = []
    for _ in range(200):
        small.ring("north")
        if some := small.pull("north", ANN):
            read += [filed.letter.body for filed in some]
            small.acknowledge("north", ANN, some[-1].offset or 0)
    assert sorted(read) == sorted(f"{sender}{number}" for sender, number in keys)
    assert small.stores["north"].queue_length(ANN) == 0


def test_deposit_with_an_invalid_number_is_refused_at_once() -> None:
    """Not later, when all queued letters would fail with it."""
    post = PostNetwork()
    with pytest.raises(InputError):
        post.tell("north", Deposit((Letter(ANN, "pipeline", 0, "{}"), Letter(ANN, "pipeline", 1, "{}"))))
    post.register(ANN)
    assert post.bodies("north", ANN) == []
