"""Letters on their way from office to office."""

from __future__ import annotations

import pytest
from post import ANN, BEN, EVE, Post

from roamcast.deliver.context import OfficeLimits
from roamcast.deliver.mailbox import LetterKey
from roamcast.deliver.messages import AddressUpdate, BundleReceipt, LocationQuery, WorkDue
from roamcast.deliver.messages import LetterBundle as PostMessage
from roamcast.deliver.port import PendingWork, WorkKind
from roamcast.deliver.requests import Deposit, Deposited, LetterSent, SendLetter
from roamcast.errors import CapacityError, ConflictError, ElsewhereError, InputError, NotFoundError
from roamcast.model import Letter


@pytest.fixture
def post() -> Post:
    post = Post()
    post.register(ANN, BEN, EVE)
    return post


def test_inside_a_domain_letters_need_no_network(post: Post) -> None:
    """Case 1 of MailSender."""
    post.register("north.pier.ida")
    post.send("north", ANN, "north.pier.ida", "hello")
    assert not post.wires
    assert post.bodies("north", "north.pier.ida") == ["hello"]


def test_who_is_unknown_is_asked_for_at_home(post: Post) -> None:
    """Case 3: query, answer, post; and the second letter goes straight there, which is case 2."""
    post.send("north", ANN, BEN, "one")
    assert [type(message) for _, _, message in post.wires] == [LocationQuery]
    post.carry()
    assert post.bodies("south", BEN) == ["one"]
    post.send("north", ANN, BEN, "two")
    assert [type(message) for _, _, message in post.wires] == [PostMessage]
    post.carry()
    assert post.bodies("south", BEN) == ["one", "two"]


def test_a_letter_is_kept_until_the_other_office_has_it(post: Post) -> None:
    """Whatever is lost on the way, there or back, it is posted again, and comes once."""
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


def test_waits_get_longer_and_begin_anew_after_an_answer(post: Post) -> None:
    """Backoff; jitter is left to whoever sets the timer, between two bounds."""
    post.send("north", ANN, BEN, "one")
    duty = PendingWork(WorkKind.POST, BEN)
    waits = []
    for _ in range(7):
        wake = post.timers["north"][duty]
        assert wake.earliest < wake.latest
        waits.append(wake.earliest)
        post.lose()
        post.ring("north")
    assert waits == [250_000, 500_000, 1_000_000, 2_000_000, 4_000_000, 5_000_000, 5_000_000]
    post.carry()
    post.send("north", ANN, BEN, "two")
    assert post.timers["north"][duty].earliest == 250_000


def test_after_a_crash_letters_go_on(post: Post) -> None:
    """A new office on the same store posts what was accepted."""
    post.send("north", ANN, BEN, "one", "two")
    post.lose()
    post.restart("north")
    post.ring("north")
    post.carry()
    assert post.bodies("south", BEN) == ["one", "two"]


def test_many_letters_go_in_bundles(post: Post) -> None:
    """Never more than a bundle at a time, all of them in the end, in order."""
    post.send("north", ANN, BEN, *map(str, range(10)))
    sizes = []

    def watch(message: object) -> bool:
        if isinstance(message, PostMessage):
            sizes.append(len(message.letters))
        return True

    post.carry(watch)
    assert max(sizes) == 3
    assert post.bodies("south", BEN) == [str(number) for number in range(10)]


def test_numbers_are_dense(post: Post) -> None:
    """The next is taken, an earlier one is acknowledged and ignored, a later one is refused."""
    assert LetterSent(ANN, ANN, 1, True) in post.tell("north", SendLetter(ANN, ANN, "one", 1))
    assert post.tell("north", SendLetter(ANN, ANN, "one", 1)) == [LetterSent(ANN, ANN, 1, False)]
    with pytest.raises(ConflictError, match="next letter to this receiver has number 2"):
        post.tell("north", SendLetter(ANN, ANN, "three", 3))
    assert LetterSent(ANN, ANN, 2, True) in post.tell("north", SendLetter(ANN, ANN, "two"))
    assert post.bodies("north", ANN) == ["one", "two"]


def test_only_who_is_served_here_may_send(post: Post) -> None:
    """For its numbers are here."""
    with pytest.raises(ElsewhereError):
        post.send("south", ANN, BEN, "one")


def test_a_receiver_that_cannot_be_is_refused(post: Post) -> None:
    """A text that is no name, or a name of this domain that nobody has."""
    with pytest.raises(InputError):
        post.send("north", ANN, "somebody", "one")
    with pytest.raises(NotFoundError):
        post.send("north", ANN, "north.pier.nobody", "one")


def test_letters_wait_for_a_receiver_who_is_not_born_yet(post: Post) -> None:
    """Its home knows nothing of it, so they stay; registered, it gets them."""
    post.send("north", ANN, "south.dock.new", "early")
    post.carry()
    assert post.stores["north"].queue_length("south.dock.new") == 1
    post.register("south.dock.new")
    post.ring("north")
    post.carry()
    assert post.bodies("south", "south.dock.new") == ["early"]


def test_too_many_letters_to_one_receiver_are_refused(post: Post) -> None:
    """The sender keeps them; nobody else is affected."""
    small = Post(rules=type(post.rules)(queue_letters=2))
    small.register(ANN, BEN, EVE)
    small.send("north", ANN, BEN, "one", "two")
    with pytest.raises(CapacityError):
        small.send("north", ANN, BEN, "three")
    small.send("north", ANN, EVE, "one")


def test_an_office_that_is_away_for_a_minute_delays_nobody_else(post: Post) -> None:
    """Whatever is tried for it meanwhile: a letter between others needs no timer, and one message, as always."""
    post.send("north", ANN, BEN, "before")
    post.carry()
    post.dead.add("west")
    clock, minute = 0, 60_000_000
    due: dict[PendingWork, int] = {}
    sent = 0
    while clock < minute:
        post.send("north", ANN, EVE, "waits")
        post.carry()
        due |= {duty: clock + wake.earliest for duty, wake in post.timers["north"].items() if duty not in due}
        clock = max(clock, min(due.values()))
        duty = min(due, key=lambda it: due[it])
        del due[duty], post.timers["north"][duty]
        post.tell("north", WorkDue(duty))
        sent += 1
        post.send("north", ANN, BEN, str(sent))
        between = [type(message) for source, to, message in post.wires if "west" not in (source, to)]
        assert between == [PostMessage]
        post.carry()
        assert [filed.letter.body for filed in post.pull("south", BEN, after=sent)] == [str(sent)]
    assert post.stores["north"].queue_length(EVE) == sent > 10


def test_one_sender_may_not_fill_the_queues_of_all(post: Post) -> None:
    """Its next letter is refused, whoever it is to, until some have been posted; others' are taken."""
    small = Post(rules=type(post.rules)(unposted_letters=2))
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


def test_what_the_pipeline_deposits_is_always_taken(post: Post) -> None:
    """It has no other place, and one receiver must not keep the others' letters waiting."""
    small = Post(rules=type(post.rules)(queue_letters=1, unposted_letters=1))
    letters = tuple(Letter(EVE, "pipeline", number, "{}") for number in (1, 2, 3))
    assert small.tell("north", Deposit(letters))[-1] == Deposited(0, 3)


def test_an_answer_counts_for_the_letters_it_names_only(post: Post) -> None:
    """A letter refused stays queued while those around it are taken."""
    small = Post(rules=type(post.rules)(bundle_letters=5, held_letters=1))
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


def test_letters_refused_do_not_keep_others_waiting(post: Post) -> None:
    """Two offices each with a bundle of early letters in front of what the other's letters wait for."""
    small = Post(rules=type(post.rules)(bundle_letters=2, held_letters=1))
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


def test_what_passes_an_office_goes_on_to_a_later_epoch_only(post: Post) -> None:
    """An office that knows nothing newer than the sender lets the letter lie; so there is no circle."""
    letter = Letter(BEN, "pipeline", 1, "x")
    post.arrive("west", BEN)
    post.carry()
    assert post.stores["south"].last_known(BEN).office == "west"
    post.tell("south", PostMessage(BEN, (letter,), "north", known_epoch=1))
    forwarded = post.only(PostMessage)
    assert (post.wires[-1][1], forwarded.known_epoch) == ("west", 2)
    post.lose()
    post.tell("south", PostMessage(BEN, (letter,), "north", known_epoch=2))
    assert not post.wires


def test_a_letter_passed_on_is_answered_by_who_has_it(post: Post) -> None:
    """The sender's office learns from the answer where the receiver is, and posts there from then on."""
    post.send("north", ANN, BEN, "one")
    post.carry()
    post.arrive("west", BEN)
    post.carry(lambda message: not (isinstance(message, AddressUpdate) and message.friend))
    assert post.stores["north"].last_known(BEN).office == "south"
    post.send("north", ANN, BEN, "two")
    post.carry()
    assert post.stores["north"].last_known(BEN).office == "west"
    post.send("north", ANN, BEN, "three")
    assert post.wires[-1][1] == "west"
    post.carry()
    assert post.bodies("west", BEN) == ["one", "two", "three"]


def test_a_dead_office_delays_only_who_is_there() -> None:
    """The office on the old way does not answer; the home tells the sender the new one."""
    post = Post(("north", "south", "west", "east"))
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


def test_a_full_mailbox_costs_little_however_much_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time it is looked at, or something is acknowledged, a few of the letters that wait are read, not all."""
    small = Post(rules=OfficeLimits(bundle_letters=3, mailbox_letters=5, held_letters=2))
    small.register(ANN)
    letters = tuple(Letter(ANN, "pipeline", number, str(number)) for number in range(1, 301))
    small.tell("north", Deposit(letters))
    store, looked = small.stores["north"], []
    queued = store.queued

    def counted(receiver: str, after: LetterKey, limit: int) -> list[Letter]:
        found = queued(receiver, after, limit)
        looked.append(len(found))
        return found

    monkeypatch.setattr(store, "queued", counted)
    small.ring("north")
    small.acknowledge("north", ANN, 1)
    assert sum(looked) < 30


def test_all_that_waits_for_a_full_mailbox_comes_in_the_end() -> None:
    """As its owner reads, whoever it is from and in whatever order it lies in the queue."""
    small = Post(rules=OfficeLimits(bundle_letters=3, mailbox_letters=5, held_letters=2))
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


def test_a_letter_without_a_number_is_refused_when_it_is_left() -> None:
    """Not later, when its receiver is registered and everything that waits would fail with it."""
    post = Post()
    with pytest.raises(InputError):
        post.tell("north", Deposit((Letter(ANN, "pipeline", 0, "{}"), Letter(ANN, "pipeline", 1, "{}"))))
    post.register(ANN)
    assert post.bodies("north", ANN) == []
