"""The deliver bench counts letters that really went in and came out."""

from __future__ import annotations

from pathlib import Path

import pytest
from nodes import running_node

from roamcast.lab.bench import deliver_ever
from roamcast.lab.bench.deliver_load import Timed, read_out, register, send_in
from roamcast.lab.bench.deliver_moves import bench_letter, bench_moves


def test_what_is_sent_in_is_read_out(tmp_path: Path) -> None:
    """Every letter, in order and once; afterwards the mailboxes are empty."""
    with running_node(tmp_path) as node:
        receivers = [f"r{number}" for number in range(7)]
        tokens = register(node.url, receivers)
        (sender,) = register(node.url, ["sender"])
        assert send_in(node.url, sender, receivers, 2_500).letters == 2_500
        assert read_out(node.url, tokens).letters == 2_500
        assert read_out(node.url, tokens).letters == 0


def test_each_way_of_a_letter_is_timed(tmp_path: Path) -> None:
    """One figure for each letter, none of them before it was sent."""
    with running_node(tmp_path) as node:
        ways = bench_letter(node.url, 5)
    assert len(ways) == 5
    assert min(ways) > 0


def test_a_mailbox_that_moves_to_and_fro_keeps_its_letters(tmp_path: Path) -> None:
    """The first letter is pulled first after each move, here one that needs no other office."""
    with running_node(tmp_path) as node:
        assert len(bench_moves(node.url, node.url, 60, 3)) == 3


def test_what_a_letter_costs_is_measured_at_each_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the round that ends there."""
    monkeypatch.setattr(deliver_ever, "_ROUND", 200)
    monkeypatch.setattr(deliver_ever, "_BATCH", 50)
    costs = deliver_ever.bench_ever(tmp_path, 10, [200, 600], lambda _: None)
    assert sorted(costs) == [200, 600]


def test_rates_are_of_all_together() -> None:
    """From the first to begin to the last to end."""
    assert Timed.rate([Timed(10.0, 12.0, 300), Timed(11.0, 14.0, 100)]) == 100.0
