"""Several hosts on one bridge, cables that can be pulled, and a place outside of all of them.

    with Network() as network, Host(tree, network=network) as one, Host(...) as other:
        one.run("curl", f"http://{other.address}:8080/api/health")
        other.cut()          # the cable is pulled: nothing arrives, nothing is refused, no FIN
        other.cut("in")      # one way: it is heard by everybody and hears nobody
        other.heal()
        other.lose_power()   # off between two instructions; start() boots it again, see Host
        network.run("curl", f"http://{one.address}:8080/api/health")   # as a client elsewhere

`run`, `sh` and `argv` of a host do not use its network: they work whatever is cut. `start_all`
boots several at once. `ServerHost` (servers.py) is a host with PostgreSQL and Redis.

All of it lives in a network namespace of its own: the machine does not see the bridge, no address
can collide with the machine's, and the kernel removes everything when the last process is gone,
also when that is because pytest was killed.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from tests.host.command import CommandPlace
from tests.servers.reaper import watched

if TYPE_CHECKING:
    from tests.host.machine import Host

#: Which way is cut, as the host sees it: what comes in, what goes out, or both.
Way = Literal["both", "in", "out"]
BRIDGE = "net0"
_PREFIX = "10.77.0"
#: Holds the namespace until its stdin ends. What goes into void0 comes out where nobody looks.
_HOLDER = f"""
ip link set lo up &&
ip link add {BRIDGE} type bridge && ip link set {BRIDGE} up &&
ip address add {_PREFIX}.254/24 dev {BRIDGE} &&
ip link add void0 type veth peer name void1 && ip link set void0 up && ip link set void1 up &&
echo ready && read _
"""
#: The bridge's side of a cable: what it sends is what the host gets.
_HOOKS = {"in": "egress", "out": "ingress"}


class NetworkError(Exception):
    """A command on the network failed, with its output."""


class Network(CommandPlace):
    """A bridge without a way out. Hosts get 10.77.0.1, 10.77.0.2, ...; the outside is .254."""

    failure = NetworkError

    def __init__(self) -> None:
        self.outside = f"{_PREFIX}.254"
        self._addresses = (f"{_PREFIX}.{number}" for number in count(1))
        self._holder: subprocess.Popen[str] | None = None

    def start(self) -> Network:
        """Make the namespace and the bridge."""
        self._holder = watched(
            subprocess.Popen(
                ["unshare", "--net", "sh", "-c", _HOLDER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        assert self._holder.stdout
        if self._holder.stdout.readline() != "ready\n":
            self.stop()
            raise NetworkError("the bridge could not be made")
        return self

    def next_address(self) -> str:
        """An address that no host has."""
        return next(self._addresses)

    def argv(self, *command: object) -> list[str]:
        """The machine's command line that runs `command` outside of all hosts, on the bridge.

        It sees the files of the machine. For `Load(network, address=f"{host.address}:8080")`, too.
        """
        assert self._holder
        return ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net", "--", *map(str, command)]

    def python(self, script: str, *words: object) -> list[object]:
        """Command that runs a file of tests/host."""
        return ["/usr/bin/python3", str(Path(__file__).with_name(script)), *words]

    def plug(self, pid: int, address: str) -> Cable:
        """Give the host whose PID 1 is `pid` its address; returns its cable."""
        inside = ["nsenter", f"--net=/proc/{pid}/ns/net", "--", "ip"]
        for words in (
            ["address", "replace", f"{address}/24", "dev", "host0"],
            ["link", "set", "host0", "up"],
        ):
            subprocess.run([*inside, *words], check=True)
        shown = subprocess.run(
            [*inside, "-json", "link", "show", "host0"], check=True, stdout=subprocess.PIPE
        )
        index = json.loads(shown.stdout)[0]["link_index"]
        ports = json.loads(self.run("ip", "-json", "link", "show", "master", BRIDGE).stdout)
        return Cable(self, next(port["ifname"] for port in ports if port["ifindex"] == index))

    def stop(self) -> None:
        """Let go of the namespace. Stop the hosts first. Legal twice."""
        if self._holder:
            self._holder.communicate()
            self._holder = None

    def __enter__(self) -> Network:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class Cable:
    """From a host to the bridge. Cut from outside: the host learns only that nothing arrives."""

    def __init__(self, network: Network, port: str) -> None:
        self.network = network
        self.port = port
        self._cut: set[str] = set()

    def cut(self, way: Way = "both") -> None:
        """Drop all frames of a way, until `heal`."""
        for one in _ways(way):
            if one in self._cut:
                continue
            if not self._cut:
                self._tc("qdisc", "replace", "clsact")
            everything = "protocol all u32 match u32 0 0 action mirred egress redirect dev void0"
            self._tc("filter", "add", _HOOKS[one], *everything.split())
            self._cut.add(one)

    def heal(self) -> None:
        """As if nothing had been. Legal when nothing is cut."""
        if self._cut:
            self._tc("qdisc", "del", "clsact")
            self._cut.clear()

    def _tc(self, what: str, verb: str, *words: str) -> None:
        self.network.run("tc", what, verb, "dev", self.port, *words)


def _ways(way: Way) -> Iterator[str]:
    return iter(("in", "out") if way == "both" else (way,))


def start_all(*hosts: Host) -> None:
    """Boot several hosts at once. Raises: HostError of one of them, when all have tried."""
    with ThreadPoolExecutor(len(hosts)) as pool:
        for booting in [pool.submit(host.start) for host in hosts]:
            booting.result()
