"""The judgement: what was found on a host -> findings, each with its fix. No IO."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cordata.disk import Space
from cordata.doctor.finding import Finding, failed, ok, skipped, warning
from cordata.systemd.systemctl import Unit, span_s

#: The units that the package brings; workers are found beside them.
UNITS = ("http.socket", "primary.service", "worker@0.service", "workers.target", "cordata.target")
BACKUP_TIMER = "cordata-backup.timer"
#: Type=notify-reload came with 253; the package is tested with 257.
_OLDEST_SYSTEMD, _TESTED_SYSTEMD = 253, 257
#: Free space below which commits are about to fail, and below which somebody should look.
_LEAST_BYTES, _LITTLE_BYTES, _LITTLE_SHARE = 100 << 20, 1 << 30, 0.05
#: A log of this many times its limit: checkpoints do not succeed.
_FAR_OVER = 4
#: Connections of a process beside `pool_size`: one or two that listen.
_LISTENING = 2


def judge_systemd(version: str) -> Finding:
    """`version` is the property Version of the manager: "257.8-1~deb13u2"."""
    match = re.match(r"\d+", version)
    number = int(match[0]) if match else 0
    if number < _OLDEST_SYSTEMD:
        text = f"version {version or 'unknown'}; the units need Type=notify-reload, of 253"
        return failed("systemd", text, "upgrade to Debian 13")
    if number < _TESTED_SYSTEMD:
        text = f"version {version}; the units are tested with 257 and newer"
        return warning("systemd", text, "upgrade to Debian 13")
    return ok("systemd", f"version {version}")


def is_installed(units: Sequence[Unit]) -> bool:
    """Whether systemd knows any of the package's units."""
    known = (unit for unit in units if unit.get("Id") in UNITS)
    return any(unit.get("LoadState") != "not-found" for unit in known)


def drop_ins(unit: Unit) -> list[str]:
    """Its drop-ins of this host, without those of packages."""
    paths = unit.get("DropInPaths", "").split()
    return [path for path in paths if not path.startswith("/usr/lib/")]


def judge_units(units: Sequence[Unit], ignored: Sequence[str] = ()) -> list[Finding]:
    """`units`: from `systemctl show`; `ignored`: what `systemd-analyze verify` says of drop-ins."""
    if not is_installed(units):
        return [skipped("units", "no unit of cordata is installed: `cordata server` needs none")]
    # Instances of one template with the same files have the same faults: said once.
    files = {
        (re.sub("@.*", "@", unit["Id"]), unit.get("LoadState"), unit.get("DropInPaths")): unit
        for unit in reversed(units)
    }
    found = [one for unit in units if unit in files.values() for one in _judge_files(unit)]
    found += [one for unit in units for one in _judge_state(unit)]
    found += [
        warning("units", line, "correct that file, then `systemctl daemon-reload`")
        for line in ignored
    ]
    files_of_host = sorted({path for unit in units for path in drop_ins(unit)})
    text = f"{len(units)} units"
    if files_of_host:
        text += f"; drop-ins: {', '.join(files_of_host)}"
    return found or [ok("units", text)]


def _judge_files(unit: Unit) -> Iterator[Finding]:
    name, load = unit.get("Id", "?"), unit.get("LoadState", "")
    if load == "masked":
        fix = f"systemctl unmask {name}"
        if unit.get("ActiveState") == "active" and name.endswith(".service"):
            # It forgets NotifyAccess= of a masked unit, but not WatchdogSec= (257).
            text = f"{name} is masked while it runs: systemd ignores its notifications and kills it"
            yield failed("units", text, f"{fix}; `cordata drain` takes a worker out of service")
        else:
            yield warning("units", f"{name} is masked", fix)
        return
    if load != "loaded":
        reason = re.sub(r'^org\.freedesktop\S+ "?|"$', "", unit.get("LoadError", "")) or load
        files = " ".join(drop_ins(unit)) or "its drop-ins"
        fix = f"`systemctl cat {name}` shows it; correct or remove {files}, then"
        if load == "not-found":
            fix = "apt install --reinstall cordata, then"
        yield failed("units", f"{name}: {reason}", f"{fix} `systemctl daemon-reload`")
        return
    if unit.get("NeedDaemonReload") == "yes":
        text = f"the files of {name} have changed since systemd read them"
        yield warning("units", text, "systemctl daemon-reload")
    if name.startswith("worker@"):
        for key, wanted in (("NonBlocking", "yes"), ("Type", "notify-reload")):
            if unit.get(key, wanted) != wanted:
                text = f"{name} has {key}={unit[key]}; workers need {key}={wanted}"
                fix = f"remove {key}= from {' '.join(drop_ins(unit)) or 'the unit'}, then"
                yield failed("units", text, f"{fix} `systemctl daemon-reload`")


def _judge_state(unit: Unit) -> Iterator[Finding]:
    name = unit.get("Id", "?")
    if unit.get("ActiveState") == "failed":
        fix = f"journalctl -u {name} -n 50, then `systemctl restart {name}`"
        yield failed("units", f"{name} failed ({unit.get('Result', '')})", fix)
    if name == "cordata.target":
        if not unit.get("UnitFileState", "").startswith("enabled"):
            text = "cordata.target is not enabled: nothing starts at boot"
            yield warning("units", text, "systemctl enable --now cordata.target")
        elif unit.get("ActiveState") == "inactive":
            yield warning("units", "cordata.target is stopped", "systemctl start cordata.target")


def judge_stop_timeout(unit: Unit, key: str, stop_timeout_s: float) -> Finding | None:
    """TimeoutStopSec= of a unit has to leave room for `[worker] stop_timeout_s`; None: it does."""
    span = unit.get("TimeoutStopUSec", "infinity")
    if span == "infinity" or span_s(span) > stop_timeout_s:
        return None
    text = f"{unit['Id']} is killed {span} after a stop begins; {key} is {stop_timeout_s:g} s"
    return warning("limits", text, f"lower {key}, or raise TimeoutStopSec= of the unit")


def judge_open_files(limit: int, max_connections: int, *, fix: str) -> Finding:
    """Each connection may need a second descriptor: a file, or a connection of a handler."""
    needed = 2 * max_connections
    if limit < needed:
        text = f"{limit} open files for {max_connections} connections ([http] max_connections)"
        return warning("limits", text, fix)
    return ok("limits", f"{limit} open files for a worker")


def judge_backlog(backlog: int, somaxconn: int) -> Finding | None:
    """The kernel cuts the backlog of a socket to net.core.somaxconn; None: it is enough."""
    if somaxconn >= backlog:
        return None
    text = f"net.core.somaxconn is {somaxconn}, http.socket wants a backlog of {backlog}"
    return warning("limits", text, f"sysctl -w net.core.somaxconn={backlog}, and in /etc/sysctl.d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Something that listens on a TCP address."""

    address: str
    #: "nginx (pid 12)"; "" if this user cannot see it.
    process: str = ""


def listen_addresses(unit: Unit) -> list[str]:
    """The addresses of http.socket, `systemctl show -p Listen` prints one per line."""
    return [line.rpartition(" ")[0] for line in unit.get("Listen", "").splitlines()]


def judge_socket(
    unit: Unit, address: str, *, is_there: bool, others: Sequence[Listener]
) -> Finding:
    """One address of http.socket. `is_there`: something listens, or the unix socket's file is
    there; `others`: listeners on its port.
    """
    if unit.get("ActiveState") == "active":
        if is_there:
            return ok("sockets", f"http.socket listens on {address}")
        fix = "systemctl stop http.socket cordata.target && systemctl start http.socket"
        return failed("sockets", f"nothing listens on {address} any more", f"{fix} cordata.target")
    if others:
        who = others[0].process or "another program"
        text = f"{who} listens on {others[0].address}, which http.socket needs"
        fix = "stop that program, or give http.socket another address: `systemctl edit http.socket`"
        return failed("sockets", text, fix)
    if unit.get("ActiveState") == "failed":
        fix = "systemctl status http.socket, then `systemctl restart http.socket`"
        return failed("sockets", f"http.socket failed ({unit.get('Result', '')})", fix)
    text = f"http.socket is stopped: connections to {address} are refused"
    return warning("sockets", text, "systemctl start http.socket cordata.target")


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file or directory, and who may do what with it."""

    path: str
    owner: str
    mode: int
    is_directory: bool = False
    #: Its file system is mounted read-only.
    read_only: bool = False
    #: The service's user may read it.
    readable: bool = True


def judge_state(files: Iterable[File], user: str) -> Iterator[Finding]:
    """The state directory and what is in it: the service's own, closed to all others."""
    for file in files:
        if file.read_only:
            text = f"{file.path} is on a file system that is mounted read-only"
            yield failed("permissions", text, "mount it read-write: `findmnt` shows why it is not")
        if file.owner != user:
            text = f"{file.path} belongs to {file.owner}, not to {user}"
            yield failed("permissions", text, f"chown {user}: {file.path}")
        elif not file.mode & stat.S_IWUSR:
            text = f"{user} cannot write to {file.path}"
            yield failed("permissions", text, f"chmod u+rwX {file.path}")
        yield from _closed(file)


def judge_credentials(files: Iterable[File], user: str) -> Iterator[Finding]:
    """The secrets: of root (systemd hands them out) or of the service's user, and of no other."""
    for file in files:
        if file.owner not in ("root", user):
            text = f"{file.path} belongs to {file.owner}"
            yield failed("permissions", text, f"chown root: {file.path}")
        yield from _closed(file)


def _closed(file: File) -> Iterator[Finding]:
    """A directory that others may list is a fault of its own only where a file in it is open."""
    if file.mode & 0o077:
        text = f"{file.path} is open to other users (mode {file.mode:o})"
        judged = warning if file.is_directory else failed
        yield judged("permissions", text, f"chmod go= {file.path}")


def judge_configuration(files: Iterable[File], user: str) -> Iterator[Finding]:
    """The settings name code that runs: only root or the service's user may write them."""
    for file in files:
        if file.mode & 0o022:
            text = f"other users may write to {file.path} (mode {file.mode:o})"
            yield failed("permissions", text, f"chmod go-w {file.path}")
        if not file.readable:
            yield failed(
                "permissions", f"{user} cannot read {file.path}", f"chmod a+rX {file.path}"
            )


def judge_clock(synchronized: str | None) -> Finding:
    """`synchronized` is NTPSynchronized of timedatectl; None: it gave no answer."""
    if synchronized is None:
        return skipped("clock", "timedatectl gives no answer here")
    if synchronized != "yes":
        text = "the clock is not synchronised: due times, reports and logs follow it"
        return warning("clock", text, "timedatectl set-ntp true")
    return ok("clock", "synchronised")


def judge_space(space: Space, *, fix: str) -> Finding:
    """Commits fail when the disk is full: say so before."""
    text = f"{size(space.free_bytes)} of {size(space.total_bytes)} free for {space.path}"
    little = min(_LITTLE_BYTES, int(space.total_bytes * _LITTLE_SHARE))
    if space.free_bytes < _LEAST_BYTES:
        return failed("disk", text, fix)
    if space.free_bytes < little:
        return warning("disk", text, fix)
    if space.total_inodes and space.free_inodes < space.total_inodes * _LITTLE_SHARE:
        count = f"{space.free_inodes:,} of {space.total_inodes:,} inodes free for {space.path}"
        return (warning if space.free_inodes else failed)("disk", count, fix)
    return ok("disk", text)


def judge_backup(timer: Unit) -> Finding:
    """The timer of backups, which the package does not enable. A backup that failed is a failed
    unit.
    """
    state = timer.get("UnitFileState", "")
    if not state.startswith("enabled"):
        text = f"{BACKUP_TIMER} is {state or 'missing'}; other backups are not known here"
        fix = f"write the passphrase, then `systemctl enable --now {BACKUP_TIMER}`"
        return skipped("backup", text, f"{fix}; `systemctl cat {BACKUP_TIMER}` says more")
    if timer.get("ActiveState") != "active":
        text = f"{BACKUP_TIMER} is enabled, but {timer.get('ActiveState', 'not there')}"
        return warning("backup", text, f"systemctl start {BACKUP_TIMER}")
    last = timer.get("LastTriggerUSec", "")
    return ok("backup", f"{BACKUP_TIMER} is enabled; last backup: {last or 'none yet'}")


def judge_wal(live_bytes: int, limit_bytes: int) -> Finding:
    """The live part of SQLite's log against `[store] wal_limit_bytes`."""
    text = f"write-ahead log: {size(live_bytes)}, limit {size(limit_bytes)}"
    if live_bytes <= _FAR_OVER * limit_bytes:
        return ok("wal", text)
    fix = "does a program keep the file open? `fuser -v` on the file of the store says which"
    return warning("wal", text, fix)


#: Settings of PostgreSQL that lose acknowledged data in a crash when they are off. Of cordata's
#: sessions `synchronous_commit` is never off: it sets that itself.
DURABLE = ("fsync", "full_page_writes")


def judge_durability(settings: Mapping[str, str]) -> Iterator[Finding]:
    """`settings`: of DURABLE, as SHOW prints them."""
    for name in DURABLE:
        if settings.get(name) == "off":
            text = f"{name} is off: a crash of the server may lose what was acknowledged"
            sql = f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf()"
            yield warning("store", text, f"in psql, as a superuser: {sql}")


def judge_connections(
    *, limit: int, used_by_others: int, processes: int, pool_size: int
) -> Finding:
    """`limit`: max_connections without those reserved for superusers."""
    wanted = processes * (pool_size + _LISTENING)
    text = f"{processes} processes may open {wanted} connections"
    text += f"; the server takes {limit}, others use {used_by_others}"
    if limit - used_by_others >= wanted:
        return ok("connections", text)
    room = max(2, (limit - used_by_others) // processes - _LISTENING)
    fix = f"[store] pool_size = {room}, or raise max_connections, or put PgBouncer in front"
    return warning("connections", text, fix)


def judge_redis(
    *, version: str, appendonly: str, appendfsync: str | None, policy: str
) -> Iterator[Finding]:
    """`appendfsync` is None where the server does not tell, as many hosted ones do."""
    yield ok("broker", f"Redis {version}")
    if policy != "noeviction":
        text = f"maxmemory-policy is {policy}: Redis may drop events, which are then sent again"
        yield warning("broker", text, "redis-cli CONFIG SET maxmemory-policy noeviction")
    if appendonly != "1":
        text = "no append-only file: after a restart of Redis its events are published again"
        yield warning(
            "broker", text, "redis-cli CONFIG SET appendonly yes; CONFIG REWRITE keeps it"
        )
    elif appendfsync == "no":
        text = "appendfsync is no: after a crash of its host Redis lacks the last half minute"
        yield warning("broker", text, "redis-cli CONFIG SET appendfsync everysec")


def size(count: int) -> str:
    """Bytes for people."""
    value = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
