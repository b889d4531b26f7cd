"""Which hosts and addresses the settings allow a unit to connect to."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordata.config import Config, build, open_document
from cordata.network import Reach, drop_in_text, hosts_of, reach_of

POSTGRES = '[store]\nurl = "postgresql://cordata@db1.example.org,10.0.0.7:5433/hub"\n'
RESTRICTED = "[network]\nallow = []\n"
ALL = ("worker@", "primary", "job@", "alert@", "cordata-backup")
KNOWN = {"db1.example.org": ["10.0.0.6", "fd00::6"], "localhost": ["127.0.0.1", "::1"]}


def config(directory: Path, text: str) -> Config:
    file = directory / "cordata.toml"
    file.write_text(text)
    return build(open_document(file), None)


def resolve(host: str) -> list[str]:
    return KNOWN.get(host, [host])


@pytest.mark.parametrize(
    ("text", "units", "hosts"),
    [
        (RESTRICTED, ALL, ()),
        ("", ("worker@", "primary", "job@"), ("any",)),
        ("", ("alert@", "cordata-backup"), ()),
        (
            POSTGRES + RESTRICTED,
            ("worker@", "primary", "job@", "cordata-backup"),
            ("10.0.0.7", "db1.example.org"),
        ),
        (POSTGRES, ("alert@",), ()),
        ('[store]\nurl = "postgresql:///hub?host=/run/postgresql"\n', ("cordata-backup",), ()),
        (
            '[store]\nurl = "postgresql://proxy/hub"\nsession_url = "postgresql://db/hub"\n',
            ("cordata-backup",),
            ("db", "proxy"),
        ),
        (
            '[mail]\nhost = "[fd00::25]"\n' + RESTRICTED,
            ("worker@", "primary", "job@", "alert@"),
            ("fd00::25",),
        ),
        ('[broker]\nurl = "redis://cache:6380/0"\n' + RESTRICTED, ("worker@",), ("cache",)),
        ('[broker]\nurl = "redis://cache:6380/0"\n' + RESTRICTED, ("job@", "alert@"), ()),
        # The Sentinels name servers that no setting does.
        ('[broker]\nurl = "redis+sentinel://s1,s2/hub/0"\n' + RESTRICTED, ("primary",), ("any",)),
        ('[metrics]\nlisten = "127.0.0.1:9464"\n' + RESTRICTED, ("worker@",), ("localhost",)),
        ('[metrics]\nlisten = "/run/m.sock"\n' + RESTRICTED, ("worker@",), ()),
        ('[status]\nlisten = "127.0.0.1:9465"\n' + RESTRICTED, ("worker@",), ("localhost",)),
        ("[trace]\nexport = true\n" + RESTRICTED, ("worker@",), ("localhost",)),
        ('[network]\nallow = ["10.0.0.0/8", "pms"]\n', ("worker@", "job@"), ("10.0.0.0/8", "pms")),
        ('[network]\nallow = ["10.0.0.0/8", "pms"]\n', ("alert@", "cordata-backup"), ()),
    ],
)
def test_unit_needs_the_hosts_that_its_settings_name(
    tmp_path: Path, text: str, units: tuple[str, ...], hosts: tuple[str, ...]
) -> None:
    for unit in units:
        assert hosts_of(config(tmp_path, text), f"{unit}.service") == hosts


@pytest.mark.parametrize(
    ("allow", "addresses"),
    [
        ('"10.0.0.0/8"', ("localhost", "10.0.0.0/8")),
        ('"localhost"', ("localhost",)),
        # To look a name up again takes a name server.
        (
            '"db1.example.org"',
            ("localhost", "10.0.0.6", "fd00::6", "192.0.2.53", "2001:db8::53"),
        ),
    ],
)
def test_addresses_are_those_of_hosts_and_of_name_servers(
    tmp_path: Path, allow: str, addresses: tuple[str, ...]
) -> None:
    resolver = tmp_path / "resolv.conf"
    resolver.write_text(
        "# nameserver 192.0.2.1\nnameserver 127.0.0.53\nnameserver 192.0.2.53\n"
        "nameserver 2001:db8::53%eth0\nnameserver\nsearch example.org\n"
    )
    settings = config(tmp_path, f"[network]\nallow = [{allow}]\n")
    reach = reach_of(settings, "worker@.service", resolve=resolve, resolver=resolver)
    assert reach.addresses == addresses


def test_drop_in_denies_internet_sockets_when_no_host_is_needed() -> None:
    text = drop_in_text(Reach(unit="alert@.service", hosts=(), addresses=()))
    settings = [line for line in text.splitlines() if not line.startswith("#")]
    assert settings == [
        *("[Service]", "IPAddressDeny=any"),
        *("RestrictAddressFamilies=", "RestrictAddressFamilies=AF_UNIX"),
    ]


def test_drop_in_names_what_it_was_written_for() -> None:
    reach = Reach(unit="alert@.service", hosts=("mx",), addresses=("localhost", "10.0.0.25"))
    lines = drop_in_text(reach).splitlines()
    assert {"# Hosts: mx", "IPAddressDeny=any", "IPAddressAllow=localhost 10.0.0.25"} <= {*lines}
    assert lines[-1] == "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6"
