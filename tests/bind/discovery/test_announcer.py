"""What an answer holds, found without a look at all that was ever told."""

from __future__ import annotations

from backbones import Registry
from hypothesis import given
from hypothesis import strategies as st
from profiles import thorough

from roamcast.bind.discovery.announcer import Announcer
from roamcast.bind.discovery.messages import Ask, Heard, Interest, News, Request
from roamcast.model import Position

ALL = Interest(frozenset([Request("bind", "")]))
MOST = 3


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["put", "remove"]), st.integers(0, 7)),
            st.tuples(st.just("ask"), st.integers(0, 40)),
        ),
        max_size=60,
    )
)
@thorough()
def test_an_answer_is_what_a_look_at_everything_finds(steps: list[tuple[str, int]]) -> None:
    """In the order of numbers, from whatever was heard, late questions too; of what is gone if it may be known."""
    registry = Registry()
    announcer = Announcer("there", 1, registry, most=MOST)
    announcer.ask(Ask("here", 1, 1, ALL, Heard()))
    numbers: dict[str, int] = {}
    number = highest = 0
    for what, value in steps:
        id = f"s{value}"
        if what == "ask":
            after = min(value, number)
            highest = max(highest, after)
            answer = announcer.ask(Ask("here", 1, 1, None, Heard(1, after)))
            told = sorted(
                (last, source)
                for source, last in numbers.items()
                if last > after and (source in registry.sources or (after and last > highest))
            )
            assert [news.source for news in answer.news] == [source for _, source in told[:MOST]]
            assert [news.attributes is None for news in answer.news] == [
                source not in registry.sources for _, source in told[:MOST]
            ]
            assert answer.more == (len(told) > MOST)
            assert answer.heard == Heard(1, told[MOST - 1][0] if answer.more else number)
            continue
        if what == "put":
            registry.sources[id] = News(id, {}, Position(id, 0, 0, 1))
        elif registry.sources.pop(id, None) is None:
            continue
        number += 1
        numbers[id] = number
        announcer.changed([id])
