"""What a process that was taken over may do: tried from inside each unit, as its user."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.host.machine import CHECKOUT, Host, wait_for

#: An instance of each template that nothing else uses.
UNITS = [
    *("worker@9.service", "primary.service", "job@try.service", "alert@try.service"),
    "cordata-backup.service",
]
#: Two addresses of this host that are not loopback ones: one that is allowed, and another.
ALLOWED, OTHER = "10.99.0.2", "10.99.0.1"
RESULT = "/run/cordata/break-out.json"
#: A restart of all processes, on a busy machine.
PATIENCE_S = 600.0
FREE = {f"send to {ALLOWED}": "done", f"send to {OTHER}": "done"}
#: Refused to every process of this user, wherever it runs.
OTHERS = {
    "read the password file": "EACCES",
    "read the master key": "EACCES",
    "open a raw socket": "EPERM",
}
#: Refused by the units: the user may do it elsewhere on this host.
SANDBOX = {
    "write a file of others": "EROFS",
    "read a home": "EACCES",
    "see a process of others": "ENOENT",
    "see the kernel's settings": "ENOENT",
    "run a file in the state": "EACCES",
    "run a file in /tmp": "EACCES",
    "run a file in /var/tmp": "EACCES",
    "run a file in /dev/shm": "EACCES",
    "run a file in /run/cordata": "EACCES",
    "load a library from the state": "EPERM",
    "map memory to write and run": "EACCES",
    "make a set-uid file": "EPERM",
    "open a netlink socket": "EAFNOSUPPORT",
    "be traced": "EPERM",
    "trace another process": "EPERM",
    "make a namespace": "EPERM",
    "change a priority": "EPERM",
}
REFUSED = {**OTHERS, **SANDBOX, "open a packet socket": "EAFNOSUPPORT"}


@pytest.fixture(scope="module")
def victim(host: Host) -> Iterator[Host]:
    """A host with two more addresses, a user with a home, and a directory that is open to all."""
    text = (CHECKOUT / "tests/host/break_out.py").read_text()
    host.run("sh", "-c", "cat >/opt/break_out.py", stdin=text)
    host.sh(f"ip address add {ALLOWED}/32 dev lo && ip address add {OTHER}/32 dev lo")
    host.sh("mkdir -p /home/guest /srv/open && echo private >/home/guest/notes")
    host.sh("chmod 755 /home/guest && chmod 777 /srv/open")
    yield host


def break_out(host: Host, *options: str) -> dict[str, str]:
    """What a program finds that systemd starts with these options only."""
    program = ["python3", "/opt/break_out.py", RESULT, ALLOWED, OTHER]
    host.run("systemd-run", "--quiet", "--wait", "--collect", *options, *program)
    return found(host)


def break_out_of(host: Host, unit: str) -> dict[str, str]:
    """What the program finds that a unit starts instead of its own; the rest is the unit's."""
    directory = f"/run/systemd/system/{unit}.d"
    program = f"/usr/bin/python3 /opt/break_out.py {RESULT} {ALLOWED} {OTHER}"
    lines = ["[Service]", "Type=oneshot", "Restart=no", "ExecStart=", f"ExecStart={program}"]
    host.sh(f"mkdir {directory} && printf '%s\\n' '{chr(10).join(lines)}' >{directory}/try.conf")
    host.systemctl("daemon-reload")
    host.systemctl("stop", unit, timeout_s=PATIENCE_S)
    host.systemctl("start", unit, timeout_s=PATIENCE_S)
    host.sh(f"rm -r {directory}")
    host.systemctl("daemon-reload")
    if unit == "primary.service":
        host.systemctl("start", unit, timeout_s=PATIENCE_S)
    return found(host)


def found(host: Host) -> dict[str, str]:
    text = host.sh(f"cat {RESULT} && rm {RESULT}")
    attempts: dict[str, str] = json.loads(text)
    return attempts


def exposure(host: Host, unit: str, most: float) -> None:
    """Fails if systemd judges the unit to be more exposed than that."""
    host.run("systemd-analyze", "security", "--no-pager", f"--threshold={most * 10:.0f}", unit)


def set_network(host: Host, *lines: str) -> None:
    """Write the end of the configuration, from [network] on."""
    host.sh("sed -i '/^\\[network\\]$/,$d' /etc/cordata/cordata.toml")
    host.run("sh", "-c", "cat >>/etc/cordata/cordata.toml", stdin="\n".join(lines) + "\n")


def test_outside_of_the_units_their_user_may_do_most_of_it(victim: Host) -> None:
    # Else the refusals below would prove nothing.
    attempts = break_out(victim, "-pUser=cordata", "-pGroup=cordata")
    assert attempts == {
        **OTHERS,
        **dict.fromkeys(SANDBOX, "done"),
        "open a packet socket": "EPERM",
        **FREE,
    }


@pytest.mark.parametrize("unit", UNITS)
def test_unit_refuses_what_no_part_of_it_needs(victim: Host, unit: str) -> None:
    assert break_out_of(victim, unit) == {**REFUSED, **FREE}
    exposure(victim, unit, 1.1)
    calls = victim.props(unit, "SystemCallFilter")["SystemCallFilter"].split()
    # Not tried: the clock is the machine's, and a container may have no io_uring.
    assert "openat" in calls
    assert not {"clock_settime", "settimeofday", "io_uring_setup", "syslog", "bpf"} & {*calls}


def test_units_open_no_internet_socket_when_the_settings_name_no_host(victim: Host) -> None:
    set_network(victim, "[network]", "allow = []")
    written = json.loads(victim.run("cordata", "network", "restrict", "--json").stdout)
    assert {one["unit"]: one["addresses"] for one in written} == {
        unit.replace("@9", "@").replace("@try", "@"): [] for unit in UNITS
    }
    for unit in UNITS:
        exposure(victim, unit, 0.6)
    closed = dict.fromkeys(FREE, "EAFNOSUPPORT")
    for unit in UNITS:
        assert break_out_of(victim, unit) == {
            **REFUSED,
            "open a raw socket": "EAFNOSUPPORT",
            **closed,
        }
    # What arrives at http.socket belongs to that unit.
    victim.run("cordata", "rolling-restart", timeout_s=PATIENCE_S)
    for _ in range(8):
        assert "ready" in victim.run("curl", "-fsS", "http://127.0.0.1:8080/api/ready").stdout


def test_restricted_unit_reaches_what_the_settings_name_and_nothing_else(victim: Host) -> None:
    set_network(victim, "[network]", f'allow = ["{ALLOWED}"]')
    wait_for_doctor(victim, "worker@.service may not connect to")
    victim.run("cordata", "rolling-restart", timeout_s=PATIENCE_S)  # writes the drop-ins again
    wait_for_doctor(victim, "restricted units may connect to all")
    for unit in ("worker@9.service", "job@try.service"):
        only = {f"send to {ALLOWED}": "done", f"send to {OTHER}": "EPERM"}
        assert break_out_of(victim, unit) == {**REFUSED, **only}
    # An address that is not the local host's counts more than a loopback one.
    exposure(victim, "worker@9.service", 1.0)


def test_process_says_so_when_the_settings_name_a_host_that_its_unit_does_not_allow(
    victim: Host,
) -> None:
    victim.sh(f"""sed -i 's|^# host = ""$|host = "{OTHER}"|' /etc/cordata/cordata.toml""")
    cursor = victim.cursor()
    victim.systemctl("restart", "primary", timeout_s=PATIENCE_S)
    said = ["-u", "primary", f"--grep=not allowed to connect to {OTHER}"]
    wait_for(lambda: victim.journal(*said, since=cursor), what="the reason in the journal")
    wait_for_doctor(victim, OTHER)
    victim.sh("""sed -i 's|^host = .*|# host = ""|' /etc/cordata/cordata.toml""")


def test_units_are_as_the_package_has_them_when_the_network_is_open_again(victim: Host) -> None:
    set_network(victim)
    victim.run("cordata", "network", "open")
    assert victim.sh("find /etc/systemd/system -name network.conf") == ""
    victim.run("cordata", "rolling-restart", timeout_s=PATIENCE_S)
    assert victim.props("worker@0", "IPAddressDeny")["IPAddressDeny"] == ""


def wait_for_doctor(host: Host, text: str) -> None:
    """Wait until `cordata doctor` says this of restricted units; a check may take too long."""

    def says() -> bool:
        done = host.run("cordata", "doctor", "--json", check=False)
        checks = json.loads(done.stdout)["checks"]
        return any(text in one["text"] for one in checks if one["check"] == "network")

    wait_for(says, timeout_s=300, what=f"{text!r} from the doctor")
