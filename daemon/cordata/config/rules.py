"""Rules for the runtime's settings that types cannot express; problems are (key, text) pairs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path

from cordata.config.pool import PoolConfig
from cordata.config.sections import (
    AlertConfig,
    HttpConfig,
    MailConfig,
    MetricsConfig,
    NetworkConfig,
    StatusConfig,
    WorkerConfig,
)

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: A host name or an address, also in brackets. The port is another setting.
_HOST = re.compile(r"[\w.-]*|\[?[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\]?")
#: A name, an address or a network.
_NETWORK = re.compile(r"[\w.-]+|[0-9A-Fa-f.:]+(/[0-9]{1,3})?")
_ADDRESS = re.compile(r"[^<>]*<[^<>\s@]+@[^<>\s@]+>|[^<>\s@]+@[^<>\s@]+")
_POOL_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
#: (section, lower key, upper key): the first must not be above the second.
_ORDERED = (
    ("engine", "retry_first_s", "retry_max_s"),
    ("mail", "retry_first_s", "retry_max_s"),
    ("mail", "retry_max_s", "give_up_s"),
    ("pool", "health_timeout_s", "health_s"),
    ("pool", "restart_first_s", "restart_max_s"),
    ("pool", "max_session_bytes", "max_sessions_bytes"),
)


def section_problems(name: str, section: object) -> Iterator[tuple[str, str]]:
    """Problems of a section or an override; `name` is for example "worker" or "worker.2"."""
    for declared in fields(section):  # type: ignore[arg-type]
        value = getattr(section, declared.name)
        items = value if isinstance(value, tuple) else (value,)
        if any(isinstance(item, str | Path) and _CONTROL.search(str(item)) for item in items):
            yield declared.name, "has a line break or another control character"
        elif twice := sorted({str(item) for item in items if items.count(item) > 1}):
            yield declared.name, f"names {twice[0]!r} twice"
    for of, lower, upper in _ORDERED:
        if of == name.partition(".")[0] and getattr(section, lower) > getattr(section, upper):
            yield lower, f"must not be more than {upper} ({getattr(section, upper)})"
    match section:
        case WorkerConfig(services=()):
            yield "services", "must name at least one service"
        case HttpConfig():
            yield from _proxy_problems(section.trusted_proxies)
        case MailConfig():
            yield from _mail_problems(section)
        case AlertConfig():
            for address in section.to:
                if not _ADDRESS.fullmatch(address) and not _CONTROL.search(address):
                    yield "to", f"names {address!r}, which is no address like name@example.com"
        case MetricsConfig():
            if section.listen and not section.enabled:
                yield "listen", "needs enabled = true"
            yield from _listen_problems(section.listen, 9464)
        case StatusConfig():
            yield from _listen_problems(section.listen, 9465)
        case NetworkConfig():
            for name in section.allow:
                if not _NETWORK.fullmatch(name):
                    yield "allow", f"names {name!r}, which is no address, network or host name"


def _mail_problems(mail: MailConfig) -> Iterator[tuple[str, str]]:
    if not _HOST.fullmatch(mail.host) and not _CONTROL.search(mail.host):
        text = "must be the name or address of a server alone; set the port with [mail] port"
        yield "host", text
    if not _ADDRESS.fullmatch(mail.sender) and not _CONTROL.search(mail.sender):
        yield "sender", "must be an address, user@host or Name <user@host>"


def _listen_problems(listen: str, port: int) -> Iterator[tuple[str, str]]:
    if not listen or listen.startswith("/") or _is_loopback(listen):
        return
    text = (
        f"must be a loopback address and a port (127.0.0.1:{port}, [::1]:{port}), or the path of a"
        " unix socket: it is for this host only; use a reverse proxy for others"
    )
    yield "listen", text


def _is_loopback(listen: str) -> bool:
    import ipaddress  # takes 5 ms, and the default does not need it

    host, _, port = listen.rpartition(":")
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    bracketed = host.startswith("[") and host.endswith("]")
    return (
        address.is_loopback
        and bracketed == (address.version == 6)
        and port.isascii()
        and port.isdecimal()
        and 0 < int(port) < 65_536
    )


def _proxy_problems(names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    import ipaddress  # takes 5 ms, and the default does not need it

    for entry in names:
        try:
            if entry != "unix":
                ipaddress.ip_network(entry, strict=False)
        except ValueError:
            yield "trusted_proxies", f"names {entry!r}, which is no address, network or 'unix'"


def pool_problems(
    pool: PoolConfig, pools: Mapping[str, PoolConfig]
) -> Iterator[tuple[str, str, str]]:
    """Problems that concern [pool] and the sections [pool.NAME] together: (section, key, text)."""
    for key in ("workers", "commands"):
        if getattr(pool, key):
            yield "pool", key, "belongs into a section [pool.NAME]"
    for name, named in pools.items():
        section = f"pool.{name}"
        if name == "default" or not _POOL_NAME.fullmatch(name):
            yield section, "", "a pool's name is lower case letters, digits, - and _, not 'default'"
        if not named.workers:
            yield section, "workers", "must name at least one worker"
        if not named.commands:
            yield section, "commands", 'must name at least one command, or "*"'
    for key in ("workers", "commands"):
        owners: dict[str, str] = {}
        for name, named in pools.items():
            for item in getattr(named, key):
                if item in owners:
                    yield f"pool.{name}", key, f"names {item!r}, which [pool.{owners[item]}] has"
                owners.setdefault(item, name)
