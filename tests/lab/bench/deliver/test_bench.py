"""The deliver benchmark counts letters that really went in and out."""

from __future__ import annotations

from pathlib import Path

import pytest
from nodes import running_node

from roamcast.lab.bench.deliver import long_term
from roamcast.lab.bench.deliver.load import TimedLetters, read_out, register, send_in
from roamcast.lab.bench.deliver.moves import bench_letter, bench_moves


def test_all_letters_sent_are_read(tmp_path: Path) -> None:
    """In order and once; afterwards the mailboxes are empty."""
    with running_node(tmp_path) as node:
        receivers = [f"r{number}" for number in range(7)]
        tokens = register(node.url, receivers)
        (sender,) = register(node.url, ["sender"])
        assert send_in(node.url, sender, receivers, 2_500).letters == 2_500
        assert read_out(node.url, tokens).letters == 2_500
        assert read_out(node.url, tokens).letters == 0


def test_latency_is_measured_for_each_letter(tmp_path: Path) -> None:
    with running_node(tmp_path) as node:
        latencies = bench_letter(node.url, 5)
    assert len(latencies) == 5
    assert min(latencies) > 0


def test_moving_mailbox_keeps_its_letters(tmp_path: Path) -> None:
    """The first letter is pulled first after each move."""
    with running_node(tmp_path) as node:
        assert len(bench_moves(node.url, node.url, 60, 3)) == 3


def test_long_term_cost_is_measured_at_each_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_term, "_ROUND", 200)
    monkeypatch.setattr(long_term, "_BATCH", 50)
    costs = long_term.bench_long_term(tmp_path, 10, [200, 600], lambda _: None)
    assert sorted(costs) == [200, 600]


def test_rate_spans_from_the_first_start_to_the_last_end() -> None:
    assert TimedLetters.rate([TimedLetters(10.0, 12.0, 300), TimedLetters(11.0, 14.0, 100)]) == 100.0
