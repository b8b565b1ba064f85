"""Hosts that share nothing but a network: each is a network namespace with a data folder, a node and a pipeline."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3_000)]

DRIVER = Path(__file__).parents[1] / "support" / "hosts_driver.py"
PEERS, DRIVERS = "10.77.0", "10.78.0"
PORT = 8080
EVENTS = 10_000  # at least, in each phase
ASK = """
import sys, urllib.request
url, body, token = sys.argv[1:]
request = urllib.request.Request(url, body.encode() or None, {"Authorization": f"Bearer {token}"})
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
print(opener.open(request, timeout=5).read().decode())
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Network:
    """A namespace for each host, with a link to the others and one to the driver, which is in the namespace `hub`."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self.prefix = f"rc{os.getpid()}"
        self.hosts = hosts

    def name(self, host: str) -> str:
        return f"{self.prefix}-{host}"

    @contextmanager
    def up(self) -> Iterator[None]:
        try:
            ip("netns", "add", self.name("hub"))
            for bridge, subnet in (("peers", PEERS), ("drivers", DRIVERS)):
                ip("-n", self.name("hub"), "link", "add", bridge, "type", "bridge")
                ip("-n", self.name("hub"), "link", "set", bridge, "up")
                ip("-n", self.name("hub"), "addr", "add", f"{subnet}.254/24", "dev", bridge)
            for number, host in enumerate(self.hosts, 1):
                ip("netns", "add", self.name(host))
                ip("-n", self.name(host), "link", "set", "lo", "up")
                for bridge, subnet in (("peers", PEERS), ("drivers", DRIVERS)):
                    end = f"{bridge}{number}"
                    ip(
                        "link", "add", bridge, "netns", self.name(host), "type", "veth",
                        "peer", "name", end, "netns", self.name("hub"),
                    )  # fmt: skip
                    ip("-n", self.name("hub"), "link", "set", end, "master", bridge, "up")
                    ip("-n", self.name(host), "addr", "add", f"{subnet}.{number}/24", "dev", bridge)
                    ip("-n", self.name(host), "link", "set", bridge, "up")
            yield
        finally:
            for host in ("hub", *self.hosts):
                with suppress(subprocess.CalledProcessError):
                    ip("netns", "del", self.name(host))

    def start(self, host: str, log: IO[bytes], *command: str) -> subprocess.Popen[bytes]:
        words = ["ip", "netns", "exec", self.name(host), sys.executable, *command]
        environment = {**os.environ, "ROAMCAST_PIPELINE__INTERVAL": "0.25"}  # three pipelines work all the time
        return subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def set_link(self, host: str, state: str) -> None:
        ip("-n", self.name(host), "link", "set", "peers", state)

    def make_slow(self, host: str) -> None:
        """Delay and lose packets to other hosts. A kernel without netem has a token bucket, which does both."""
        try:
            self._tc(host, "replace", "netem", "delay", "40ms", "20ms", "loss", "5%")
        except subprocess.CalledProcessError:
            self._tc(host, "replace", "tbf", "rate", "256kbit", "burst", "4kb", "latency", "60ms")

    def make_fast(self, host: str) -> None:
        self._tc(host, "del")

    def _tc(self, host: str, change: str, *discipline: str) -> None:
        words = ["ip", "netns", "exec", self.name(host), "tc", "qdisc", change, "dev", "peers", "root", *discipline]
        subprocess.run(words, check=True, capture_output=True)


class Host:
    """A node and a pipeline, which can be killed and started again."""

    def __init__(self, network: Network, name: str, folder: Path, opened: ExitStack) -> None:
        self.name = name
        self.network = network
        number = network.hosts.index(name) + 1
        self.peer_url, self.url = (f"http://{subnet}.{number}:{PORT}" for subnet in (PEERS, DRIVERS))
        self.data = folder / name
        self._log = opened.enter_context((folder / f"{name}.log").open("wb"))
        self._join: tuple[str, ...] = ()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def join(self, url: str, invitation: str) -> None:
        self._join = "--join", url, "--invitation", invitation

    def start(self, part: str) -> None:
        more = ["pipeline", "--data", str(self.data), "--create"]
        if part == "node":
            more = ["node", "--domain", self.name, "--host", "0.0.0.0", "--port", str(PORT)]
            more += ["--public-url", self.peer_url, "--data", str(self.data), *self._join]
        self.processes[part] = self.network.start(self.name, self._log, "-m", "roamcast", *more)

    def kill(self, part: str) -> None:
        self.processes[part].send_signal(signal.SIGKILL)
        self.processes[part].wait()

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()

    def ask(self, path: str, body: str = "", token: str = "") -> str:
        """The response to a request that is sent within the namespace; empty if there is none."""
        words = ["ip", "netns", "exec", self.network.name(self.name), sys.executable, "-c", ASK]
        url = f"http://127.0.0.1:{PORT}{path}"
        done = subprocess.run([*words, url, body, token], capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else ""

    def wait(self) -> None:
        end = time.monotonic() + 240
        while not self.ask("/healthz/ready"):
            if time.monotonic() > end:
                raise TimeoutError(f"{self.name} does not start")
            time.sleep(0.2)

    def invite(self, domain: str) -> str:
        token = (self.data / "operator.token").read_text().strip()
        answer = self.ask("/v1/office/invitations", json.dumps({"domain": domain}), token)
        return str(json.loads(answer)["invitation"])


def disturb(network: Network, host: Host, fault: str, draw: random.Random) -> None:
    """One fault, which is over when this returns, but for the time that processes take to start."""
    if fault == "slow":
        network.make_slow(host.name)
        time.sleep(draw.uniform(2, 5))
        network.make_fast(host.name)
    elif fault == "down":
        network.set_link(host.name, "down")
        time.sleep(draw.uniform(1, 8))
        network.set_link(host.name, "up")
    else:
        host.kill(fault)
        time.sleep(draw.uniform(0, 2))
        host.start(fault)
        time.sleep(draw.uniform(1, 4))


def wait_for_steps(steps: Path, count: int) -> None:
    """Until roamers have made so many steps more, or a few seconds: a fault may last longer than what caused it."""
    end, size = time.monotonic() + 3, steps.stat().st_size
    while steps.stat().st_size < size + count and time.monotonic() < end:
        time.sleep(0.05)


@dataclass(frozen=True)
class Phase:
    """A run of the driver, while these faults happen, one after the other."""

    name: str
    hosts: Sequence[str]
    faults: Sequence[tuple[str, str]]


# Every fault happens in both phases, and at each host in one of them. While a pipeline starts, which takes longest,
# others happen.
PHASES = (
    Phase(
        "two",
        ("north", "south"),
        (("north", "pipeline"), ("south", "node"), ("north", "down"), ("south", "slow")),
    ),
    Phase(
        "three",
        ("north", "south", "west"),
        (
            ("west", "pipeline"), ("north", "node"), ("south", "pipeline"), ("west", "down"),
            ("north", "slow"), ("west", "node"), ("south", "down"), ("west", "slow"),
        ),
    ),
)  # fmt: skip


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network(PHASES[-1].hosts)
    try:
        opened = network.up()
        opened.__enter__()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    yield network
    opened.__exit__(None, None, None)


def test_every_letter_arrives_once_and_in_order_while_links_and_processes_fail(
    network: Network, tmp_path: Path
) -> None:
    """Every event that was published while a subscription was active arrives once, and nothing else does.

    First between two hosts; then a third joins them.
    """
    with ExitStack() as opened:
        hosts = {name: Host(network, name, tmp_path, opened) for name in network.hosts}
        for host in hosts.values():
            opened.callback(host.stop)
        for phase in PHASES:
            for name in phase.hosts:
                if not hosts[name].processes:
                    start(hosts[name], hosts[phase.hosts[0]])
            run_phase(phase, hosts, tmp_path / phase.name, opened)


def start(host: Host, first: Host) -> None:
    """Start a host that joins the first one."""
    if host is not first:
        host.join(first.peer_url, first.invite(host.name))
    host.start("node")
    host.wait()
    host.start("pipeline")


def run_phase(phase: Phase, hosts: Mapping[str, Host], folder: Path, opened: ExitStack) -> None:
    network = hosts[phase.hosts[0]].network
    folder.mkdir()
    log = folder / "driver.log"
    urls = [f"{name}={hosts[name].url}" for name in phase.hosts]
    output = opened.enter_context(log.open("wb"))
    driver = network.start("hub", output, str(DRIVER), str(folder), str(EVENTS), *urls)
    opened.callback(driver.kill)
    while driver.poll() is None and not (folder / "active").exists():
        time.sleep(0.2)
    draw = random.Random(17)
    for name, fault in phase.faults:
        assert driver.poll() is None, log.read_text()[-3000:]
        disturb(network, hosts[name], fault, draw)
        wait_for_steps(folder / "steps", len(phase.hosts))
    (folder / "over").touch()
    driver.wait(1_200)
    assert driver.returncode == 0, log.read_text()[-3000:]
    check(phase, *(json.loads((folder / f"{name}.json").read_text()) for name in ("counts", "verdicts")))


def check(phase: Phase, counts: Mapping[str, int], verdicts: Mapping[str, Any]) -> None:
    """That everything arrived, and that it was enough to show something."""
    for name, verdict in verdicts.items():
        assert not verdict["missing"] + verdict["extra"] + verdict["disordered"], (name, verdict)
    assert counts["events"] >= EVENTS
    steps = "migrations", "changes by visitors", "moves of sources"
    assert min(counts[step] for step in steps) >= len(phase.hosts), counts
    # A subscriber that moves must get what is published while it rests.
    least = {"region": EVENTS // 3, "follower": EVENTS // 20, "roamer": EVENTS // 20}
    for kind, host in itertools.product(least, phase.hosts):
        must = sum(verdict["must"] for name, verdict in verdicts.items() if re.match(f"{kind}.?-{host}-", name))
        assert must >= least[kind], (kind, host, must)
