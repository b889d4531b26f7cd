"""The network of the tests: three hosts on a bridge, cut off and healed, each way and both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.host.machine import CHECKOUT, Host, find_tree, wait_for
from tests.host.network import Network, start_all
from tests.servers.reaper import watched

#: Answers a datagram with the sender's word and its own count of datagrams.
_LISTENER = """
import socket, sys
heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
heard.bind(("0.0.0.0", 9))
count = 0
while True:
    word, sender = heard.recvfrom(100)
    count += 1
    open("/run/heard", "w").write(str(count))
    heard.sendto(word, sender)
"""
_ASK = """
import socket, sys
asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asked.settimeout(1)
asked.sendto(b"word", (sys.argv[1], 9))
try:
    sys.exit(asked.recv(100) != b"word")
except TimeoutError:
    sys.exit(2)
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Host, Host, Host]]:
    """Three, each with a listener; each test leaves them healed."""
    tree = find_tree()
    with Network() as network:
        one, two, three = (Host(tree, network=network) for _ in range(3))
        try:
            start_all(one, two, three)
            for host in (one, two, three):
                _listen(host)
            yield one, two, three
        finally:
            for host in (one, two, three):
                host.stop()


def _listen(host: Host) -> None:
    host.run("systemd-run", "--unit=listener", "python3", "-c", _LISTENER)
    wait_for(lambda: "0.0.0.0:9" in host.sh("ss -lnu"), what="the listener")


def _reaches(asker: Host | Network, host: Host) -> bool:
    done = asker.run("python3", "-c", _ASK, host.address, check=False)
    assert done.returncode in (0, 2), done.stderr
    return done.returncode == 0


def _heard(host: Host) -> int:
    return int(host.sh("cat /run/heard 2>/dev/null || echo 0"))


def test_each_host_reaches_each_other_and_the_outside_all(hosts: tuple[Host, Host, Host]) -> None:
    network = hosts[0].network
    assert network
    for host in hosts:
        assert _reaches(network, host)
        for asker in hosts:
            assert _reaches(asker, host), (asker.address, host.address)


def test_unit_of_the_same_name_lives_on_when_it_is_killed_on_another_host(
    hosts: tuple[Host, Host, Host],
) -> None:
    one, *others = hosts
    processes = "cat /sys/fs/cgroup/system.slice/listener.service/cgroup.procs"
    before = [host.main_pid("listener") for host in others]
    # A process of another host would be in the list as 0.
    assert [host.sh(processes) for host in others] == [str(pid) for pid in before]
    one.systemctl("kill", "--signal=KILL", "listener")
    one.systemctl("stop", "listener", check=False)
    one.systemctl("reset-failed", "listener", check=False)
    assert [host.main_pid("listener") for host in others] == before
    _listen(one)


def test_host_is_alone_when_it_is_cut_off(hosts: tuple[Host, Host, Host]) -> None:
    one, two, three = hosts
    one.cut()
    assert not _reaches(one, two)
    assert not _reaches(two, one)
    assert _reaches(two, three)
    assert one.sh("hostname") == one.name
    one.heal()
    wait_for(lambda: _reaches(one, two) and _reaches(two, one), what="the way back")


def test_host_is_heard_but_hears_nobody_when_what_comes_in_is_cut(
    hosts: tuple[Host, Host, Host],
) -> None:
    one, two, three = hosts
    before_one, before_two = _heard(one), _heard(two)
    one.cut("in")
    assert not _reaches(one, two)
    assert not _reaches(two, one)
    assert _heard(two) == before_two + 1
    assert _heard(one) == before_one
    one.cut("out")
    assert not _reaches(one, two)
    assert _heard(two) == before_two + 1
    assert _reaches(two, three)
    one.heal()
    wait_for(lambda: _reaches(one, two), what="the way back")


def test_host_hears_all_but_is_heard_by_nobody_when_what_goes_out_is_cut(
    hosts: tuple[Host, Host, Host],
) -> None:
    one, two, _ = hosts
    assert _reaches(two, one)  # it knows where one is: nobody could ask for the way now
    before_one, before_two = _heard(one), _heard(two)
    one.cut("out")
    assert not _reaches(two, one)
    assert not _reaches(one, two)
    assert _heard(one) == before_one + 1
    assert _heard(two) == before_two
    one.heal()
    wait_for(lambda: _reaches(two, one), what="the way back")


def test_connection_stays_open_when_its_host_loses_power(hosts: tuple[Host, Host, Host]) -> None:
    one, two, _ = hosts
    two.run("systemd-run", "--unit=tcp", "python3", "-m", "http.server", "8000")
    wait_for(lambda: ":8000" in two.sh("ss -lnt"), what="the server")
    connect = "import socket, sys; s = socket.create_connection((sys.argv[1], 8000)); s.recv(1)"
    one.run("systemd-run", "--unit=open", "python3", "-c", connect, two.address)
    shown = f"ss -tnH state established dst {two.address}"
    wait_for(lambda: one.sh(shown), what="the connection")
    two.lose_power()
    assert one.sh(shown), "the end of a host without power was announced"
    two.start()
    one.sh("systemctl stop open")
    _listen(two)
    wait_for(lambda: _reaches(one, two), what="the host's return")


def test_kept_directories_are_there_when_power_returns() -> None:
    with Network() as network, Host(find_tree(), network=network, keep=["/srv/data"]) as host:
        host.sh("echo kept >/srv/data/a; echo lost >/srv/b")
        address = host.address
        host.lose_power()
        host.start()
        assert host.address == address
        assert host.sh("cat /srv/data/a; ls /srv") == "kept\ndata"


_OWNER = """
import sys, time
from tests.host.machine import Host, find_tree
from tests.host.network import Network, start_all
network = Network().start()
one, two = (Host(find_tree(), network=network, keep=["/srv/data"]) for _ in range(2))
start_all(one, two)
files = [one._disk._root, *one._group.paths, *two._group.paths]
print(network._holder.pid, one._pid, two._pid, *files, flush=True)
time.sleep(600)
"""


def test_hosts_bridge_groups_and_files_are_gone_when_pytest_was_killed() -> None:
    with watched(
        subprocess.Popen(
            [sys.executable, "-c", _OWNER], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True
        )
    ) as owner:
        assert owner.stdout
        holder, one, two, *others = owner.stdout.readline().split()
        paths = [Path(f"/proc/{pid}/ns/net") for pid in (holder, one, two)]
        paths += map(Path, others)
        assert all(path.exists() for path in paths)
        os.kill(owner.pid, signal.SIGKILL)
    wait_for(lambda: not any(path.exists() for path in paths), what="the end of all of it")
