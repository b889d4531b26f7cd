"""The hosts that each unit may connect to: drop-ins for systemd, made from the settings.

    [store] [broker] [mail] [network] --> hosts of each unit --> their addresses --> network.conf

systemd filters packets by address (IPAddressAllow=), so names are resolved when the files are
written, not later. What arrives at http.socket is not filtered: those connections belong to that
unit (measured with systemd 257). A filtered TCP connection is not refused, it times out, since the
kernel drops its packets; so each file lists the hosts that it was written for, and processes and
`cordata doctor` compare them with the settings.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cordata.broker.factory import is_store
from cordata.config import Config
from cordata.errors import ConfigError, CordataError
from cordata.log import logger
from cordata.store import dialect_of
from cordata.systemd import is_booted
from cordata.systemd.systemctl import remove_drop_in, systemctl, write_drop_in

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

log = logger("cordata.network")

_UNITS = Path("/etc/systemd/system")
_RESOLVER = Path("/etc/resolv.conf")
#: The unit connects to hosts that no setting names: it is not restricted.
ANY = "any"
_LOCAL = "localhost"
#: Unit file -> the sections that name the hosts it connects to.
_SECTIONS = {
    "worker@.service": ("store", "broker", "mail", "metrics", "status", "trace", "network"),
    "primary.service": ("store", "broker", "mail", "network"),
    "job@.service": ("store", "mail", "network"),
    "alert@.service": ("mail",),
    "cordata-backup.service": ("store",),
}
_HOSTS = re.compile(r"^# Hosts:(.*)$", re.MULTILINE)
_ADDRESSES = re.compile(r"^IPAddressAllow=(.*)$", re.MULTILINE)
_UNIT = re.compile(r"/([\w-]+)(@[^/\n]*)?\.service$", re.MULTILINE)

Resolve = Callable[[str], Iterable[str]]


class NetworkError(CordataError):
    """The units cannot be restricted."""

    code = "network"


class Reach(Struct, frozen=True, kw_only=True):
    """What the processes of a unit may connect to."""

    unit: str
    #: As the settings name them; ANY: it is not restricted.
    hosts: tuple[str, ...]
    #: For systemd; empty: unix sockets only.
    addresses: tuple[str, ...]


def hosts_of(config: Config, unit: str) -> tuple[str, ...]:
    """The hosts that a unit has to reach, as the settings name them. Raises: ConfigError."""
    found: list[str] = []
    for section in _SECTIONS[unit]:
        match section:
            case "store" if dialect_of(config.store) == "postgres":
                found += _postgres_hosts(config)
            case "broker" if not is_store(config.broker):
                found += _redis_hosts(config)
            case "mail" if config.mail.host:
                found.append(config.mail.host.strip("[]"))
            case "metrics" if config.metrics.listen and not config.metrics.listen.startswith("/"):
                found.append(_LOCAL)
            case "status" if config.status.listen and not config.status.listen.startswith("/"):
                found.append(_LOCAL)
            case "trace" if config.trace.export:
                # Its address is in a variable of the exporter. Usually it is on this host.
                found.append(_LOCAL)
            case "network":
                found += config.network.allow
    return (ANY,) if ANY in found else tuple(sorted(dict.fromkeys(found)))


def _postgres_hosts(config: Config) -> list[str]:
    from cordata.store.postgres.address import addresses

    found: list[str] = []
    for address in addresses(config.store, None):
        hosts = address.params.get("hostaddr") or address.params.get("host") or ""
        # Those that begin so are unix sockets.
        found += [host for host in str(hosts).split(",") if host and host[0] not in "/@"]
    return found


def _redis_hosts(config: Config) -> list[str]:
    from cordata.broker.redis.address import parse_url

    address = parse_url(config.broker.url)
    # The Sentinels say where Redis is.
    return [ANY] if address.service else [host for host, _ in address.hosts]


def resolve(host: str) -> list[str]:
    """The addresses of a host; a network is itself. Raises: NetworkError."""
    if _network(host) is not None:
        return [host]
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise NetworkError(
            f"{host} has no address: {error.strerror}",
            hint="correct the setting that names it, or try again when the name service answers",
        ) from error
    return sorted({str(entry[4][0]).partition("%")[0] for entry in found})


def reach_of(
    config: Config, unit: str, *, resolve: Resolve = resolve, resolver: Path = _RESOLVER
) -> Reach:
    """What a unit may connect to. `resolver`: the file that names the name servers.

    Raises: ConfigError, NetworkError.
    """
    hosts = hosts_of(config, unit)
    if ANY in hosts or not hosts:
        return Reach(unit=unit, hosts=hosts, addresses=())
    addresses = [address for host in hosts for address in resolve(host)]
    if any(_network(host) is None for host in hosts if host != _LOCAL):
        # The processes look names up again at each connection.
        addresses += _name_servers(resolver)
    others = [one for one in addresses if (net := _network(one)) is None or not net.is_loopback]
    return Reach(unit=unit, hosts=hosts, addresses=(_LOCAL, *dict.fromkeys(others)))


def _network(text: str) -> IPv4Network | IPv6Network | None:
    """An address or network; None: it is a name."""
    import ipaddress  # takes 5 ms, and a start does not need it

    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _name_servers(resolver: Path) -> list[str]:
    try:
        words = [line.split() for line in resolver.read_text().splitlines()]
    except OSError:
        return []
    servers = [one[1].partition("%")[0] for one in words if one[:1] == ["nameserver"] and one[1:]]
    return [server for server in servers if _network(server) is not None]


def drop_in_text(reach: Reach) -> str:
    """The drop-in of a unit that is restricted."""
    families = "AF_UNIX AF_INET AF_INET6" if reach.addresses else "AF_UNIX"
    lines = [
        "# Written by `cordata network restrict` from the settings. Run it again when they name",
        "# other hosts, or when a name has other addresses.",
        f"# Hosts: {' '.join(reach.hosts)}".rstrip(),
        "[Service]",
        "IPAddressDeny=any",
        *([f"IPAddressAllow={' '.join(reach.addresses)}"] if reach.addresses else []),
        "RestrictAddressFamilies=",
        f"RestrictAddressFamilies={families}",
    ]
    return "\n".join(lines) + "\n"


def drop_in_of(unit: str) -> Path:
    """The drop-in of a unit. A purge of the package removes it."""
    return _UNITS / f"{unit}.d/network.conf"


async def restrict(config: Config) -> list[Reach]:
    """Restrict all units to what the settings name, from their next start on.

    Raises: ConfigError, NetworkError: nothing was written; SystemdError: not all of it was.
    """
    if not is_booted():
        hint = "a container has its own network: restrict that one"
        raise NetworkError("systemd does not run here, so there are no units", hint=hint)
    found = [reach_of(config, unit) for unit in _SECTIONS]
    for reach in found:
        if ANY in reach.hosts:
            remove_drop_in(drop_in_of(reach.unit))
        else:
            write_drop_in(drop_in_of(reach.unit), drop_in_text(reach))
    await systemctl("daemon-reload")
    return found


async def open_all() -> None:
    """Undo `restrict`, from the next start of each unit on. Raises: SystemdError."""
    for unit in _SECTIONS:
        remove_drop_in(drop_in_of(unit))
    await systemctl("daemon-reload")


def is_restricted() -> bool:
    """Whether any unit is restricted."""
    return any(drop_in_of(unit).exists() for unit in _SECTIONS)


def find_problems(config: Config) -> list[str]:
    """What the settings name and restricted units may not connect to."""
    found = []
    for unit in _SECTIONS:
        try:
            problem = _find_problem(config, unit)
        except CordataError:
            continue  # a bad url, or a name without an address: other checks say so
        if problem is not None:
            found.append(problem)
    return found


def _find_problem(config: Config, unit: str) -> str | None:
    written = _read(unit)
    if written is None:
        return None
    hosts, allowed = written
    if missing := sorted({*hosts_of(config, unit)} - hosts):
        return f"{unit} may not connect to {', '.join(missing)}, which the settings name"
    if moved := sorted({*reach_of(config, unit).addresses} - allowed):
        return f"{unit} may not connect to {', '.join(moved)}, a new address of its hosts"
    return None


def warn_if_restricted(config: Config) -> None:
    """Log it if the unit that runs this process may not reach what the settings name. Without a
    query of names: these may be unavailable at a start.
    """
    unit = _own_unit()
    written = _read(unit)
    if written is None:
        return
    try:
        missing = sorted({*hosts_of(config, unit)} - written[0])
    except ConfigError:
        return  # it ends the start, with its reason
    if missing:
        log.error(
            "the unit is not allowed to connect to %s, which the settings name: run"
            " `cordata network restrict`, then restart it",
            ", ".join(missing),
        )


def _own_unit() -> str:
    """The unit file of this process: "worker@.service"; "" outside of services."""
    try:
        found = _UNIT.search(Path("/proc/self/cgroup").read_text())
    except OSError:
        return ""
    return f"{found[1]}{'@' if found[2] else ''}.service" if found else ""


def _read(unit: str) -> tuple[set[str], set[str]] | None:
    """The hosts and the addresses in the drop-in of a unit; None: there is none of ours."""
    if unit not in _SECTIONS:
        return None
    try:
        text = drop_in_of(unit).read_text()
    except OSError:
        return None
    hosts, addresses = _HOSTS.search(text), _ADDRESSES.search(text)
    if hosts is None:
        return None
    return {*hosts[1].split()}, {*addresses[1].split()} if addresses else set()
