"""Collects what systemd and the kernel say of this host: units, limits, sockets, files, disks.

Without systemd (a container, a workstation) the checks of units are skipped, with the reason.
"""

from __future__ import annotations

import os
import pwd
import resource
import socket
import stat
import struct
import zoneinfo
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cordata.config import Config
from cordata.disk import space_of
from cordata.doctor import judge
from cordata.doctor.finding import Finding, failed, in_thread, ok, skipped
from cordata.doctor.judge import File, Listener
from cordata.network import find_problems, is_restricted
from cordata.systemd import is_booted
from cordata.systemd.systemctl import Unit, run_program, show_units

_PROPERTIES = (
    *("LoadState", "LoadError", "FragmentPath", "DropInPaths", "NeedDaemonReload"),
    *("UnitFileState", "ActiveState", "SubState", "Result", "NRestarts", "MainPID", "Slice"),
    *("User", "Type", "NonBlocking", "LimitNOFILE", "TimeoutStopUSec", "Listen", "Backlog"),
    *("ActiveEnterTimestamp", "MemoryCurrent", "LastTriggerUSec"),
)
_SLICE = "cordata.slice"
_JOURNAL = Path("/var/log/journal")
_LISTENING = "0A"
#: Flags of a socket in /proc/net/unix that listens: SO_ACCEPTCON.
_ACCEPTS = "00010000"
_NO_SYSTEMD = "systemd does not run here: `cordata server` needs no units"
#: At most this many files of the state directory are looked at.
_FILES = 1000


async def read_units() -> list[Unit]:
    """The units of the package and all services of its slice, by one call of systemctl."""
    if not is_booted():
        return []
    names = (*judge.UNITS, judge.BACKUP_TIMER)
    return [
        unit
        for unit in await show_units(_PROPERTIES, "*.service", *names)
        if unit["Id"] in names or unit.get("Slice") == _SLICE
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The checks of a host; each returns its findings."""

    config: Config
    #: The configuration file and its drop-ins.
    files: Sequence[Path]
    units: Sequence[Unit]

    def unit(self, name: str) -> Unit | None:
        """An installed unit."""
        for unit in self.units:
            if unit["Id"] == name and unit.get("LoadState") == "loaded":
                return unit
        return None

    def user(self) -> str:
        """The user of the services: of the units, else the owner of the state directory."""
        unit = self.unit("primary.service")
        if unit is not None and unit.get("User"):
            return unit["User"]
        try:
            return _name(self.config.paths.state.stat().st_uid)
        except OSError:
            return _name(os.geteuid())

    async def check_systemd(self) -> list[Finding]:
        """The version of systemd."""
        if not is_booted():
            return [skipped("systemd", _NO_SYSTEMD)]
        code, version = await run_program("systemctl", "show", "--property=Version", "--value")
        return [judge.judge_systemd("" if code else version.strip())]

    async def check_units(self) -> list[Finding]:
        """The units, and lines of their drop-ins that systemd ignores."""
        if not is_booted():
            return [skipped("units", _NO_SYSTEMD)]
        paths = {path for unit in self.units for path in judge.drop_ins(unit)}
        names = [unit["Id"] for unit in self.units if judge.drop_ins(unit)]
        if not paths:
            return judge.judge_units(self.units)
        _, text = await run_program("systemd-analyze", "verify", "--man=no", *names)
        lines = dict.fromkeys(text.splitlines())
        ignored = [line for line in lines if line.partition(":")[0] in paths]
        # systemctl says only that a unit is bad; this says why, the cause first.
        reasons = dict(
            line.split(": ", 1) for line in reversed(lines) if line.partition(": ")[0] in names
        )
        units = [
            {**unit, "LoadError": reasons.get(unit["Id"]) or unit.get("LoadError", "")}
            for unit in self.units
        ]
        return judge.judge_units(units, ignored)

    async def check_limits(self) -> list[Finding]:
        """Open files and the backlog, of the units and of the kernel; times to stop."""
        config = self.config
        worker, most = self.unit("worker@0.service"), config.http.max_connections
        if worker is None:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            return [judge.judge_open_files(limit, most, fix=f"ulimit -n {2 * most}")]
        limit = _int(worker.get("LimitNOFILE", ""))
        fix = f"`systemctl edit worker@.service`: [Service] LimitNOFILE={2 * most}"
        found: list[Finding | None] = [judge.judge_open_files(limit, most, fix=fix)]
        if (listening := self.unit("http.socket")) is not None:
            backlog = _int(listening.get("Backlog", ""))
            found.append(judge.judge_backlog(backlog, _somaxconn()))
        for unit in self.units:
            if not unit["Id"].startswith("worker@"):
                continue
            timeout_s = config.worker_of(unit["Id"][7:-8]).stop_timeout_s
            found.append(judge.judge_stop_timeout(unit, "[worker] stop_timeout_s", timeout_s))
        if (primary := self.unit("primary.service")) is not None:
            timeout_s = config.primary.stop_timeout_s
            found.append(judge.judge_stop_timeout(primary, "[primary] stop_timeout_s", timeout_s))
        return [finding for finding in found if finding is not None]

    async def check_sockets(self) -> list[Finding]:
        """Whether http.socket listens, and what else is on its ports."""
        unit = self.unit("http.socket")
        if unit is None:
            return [
                skipped("sockets", "http.socket is not installed" if is_booted() else _NO_SYSTEMD)
            ]
        target = self.unit("cordata.target") or {}
        if unit.get("ActiveState") != "active" and not target.get("UnitFileState", "").startswith(
            "enabled"
        ):
            return [
                skipped("sockets", "http.socket is not started, and cordata.target not enabled")
            ]
        found = []
        for address in judge.listen_addresses(unit):
            if address.startswith("/"):
                is_there, others = await in_thread(Path(address).is_socket), []
            elif address.startswith("@"):
                others = await in_thread(partial(find_abstract_listeners, address))
                is_there = bool(others)
            else:
                port = int(address.rpartition(":")[2])
                others = await in_thread(partial(find_listeners, port))
                is_there = bool(others)
            found.append(judge.judge_socket(unit, address, is_there=is_there, others=others))
        return found

    async def check_network(self) -> list[Finding]:
        """Whether restricted units may connect to what the settings name."""
        if not is_booted() or not is_restricted():
            return [ok("network", "no unit is restricted to certain hosts")]
        fix = "`cordata network restrict`, then `cordata rolling-restart`"
        problems = await in_thread(partial(find_problems, self.config))
        text = "restricted units may connect to all that the settings name"
        return [failed("network", one, fix) for one in problems] or [ok("network", text)]

    async def check_permissions(self) -> list[Finding]:
        """Owners and modes of state, credentials and configuration."""
        return await in_thread(self._permissions)

    def _permissions(self) -> list[Finding]:
        user, paths = self.user(), self.config.paths
        try:
            # Sockets in the runtime directory are for the group; `make run` has it in the state.
            files = _files(paths.state, user, deep=True)
            own = [one for one in files if not _is_in(one, paths.runtime) and not _is_of_git(one)]
            found = [*judge.judge_state(own, user)]
            found += judge.judge_credentials(_files(paths.credentials, user), user)
        except PermissionError as error:
            reason = f"this user may not look into {error.filename}"
            found = [skipped("permissions", reason, "run it as root")]
        settings = [path for file in self.files for path in (file.parent, file)]
        found += judge.judge_configuration(
            [_file(path, user) for path in dict.fromkeys(settings)], user
        )
        found = [*dict.fromkeys(found)]  # credentials may lie in the state directory
        return found or [ok("permissions", f"as they should be; the services' user is {user}")]

    async def check_clock(self) -> list[Finding]:
        """Whether the clock is synchronised. Nothing sets it."""
        code, _ = await run_program("systemd-detect-virt", "--quiet", "--container")
        if code == 0:
            return [skipped("clock", "a container has the clock of its host: look there")]
        code, text = await run_program(
            "timedatectl", "show", "--property=NTPSynchronized", "--value"
        )
        return [judge.judge_clock(text.strip() if code == 0 else None)]

    async def check_disk(self) -> list[Finding]:
        """Free space and inodes for the state, and for the journal if it is elsewhere."""
        return await in_thread(self._disk)

    def _disk(self) -> list[Finding]:
        space = space_of(self.config.paths.state)
        found = [judge.judge_space(space, fix=f"du -xh {space.path} | sort -h | tail")]
        if _JOURNAL.is_dir() and _JOURNAL.stat().st_dev != os.stat(space.path).st_dev:
            found.append(judge.judge_space(space_of(_JOURNAL), fix="journalctl --vacuum-size=500M"))
        return found

    async def check_backup(self) -> list[Finding]:
        """Whether the timer makes backups."""
        timer = self.unit(judge.BACKUP_TIMER)
        if timer is None:
            return [skipped("backup", "no timer is installed: `cordata backup` makes one")]
        return [judge.judge_backup(timer)]

    async def check_zones(self) -> list[Finding]:
        """The time zones of Python. Those of the data are the application's to check."""
        count = len(await in_thread(zoneinfo.available_timezones))
        if not count:
            return [failed("zones", "there is no data of time zones", "apt install tzdata")]
        return [ok("zones", f"{count} time zones")]


def find_listeners(port: int) -> list[Listener]:
    """What listens on a TCP port of this host, in this network namespace."""
    found = []
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError), open(name) as file:
            for line in list(file)[1:]:
                words = line.split()
                host, _, at = words[1].partition(":")
                if words[3] == _LISTENING and int(at, 16) == port:
                    address = f"{_address(host)}:{port}"
                    found.append(Listener(address=address, process=_process_of(words[9])))
    return found


def find_abstract_listeners(name: str) -> list[Listener]:
    """What listens on the unix socket "@name", which has no file (unix(7), abstract)."""
    found = []
    with open("/proc/net/unix") as file:
        for line in file:
            words = line.rstrip("\n").split(maxsplit=7)
            if words[3] == _ACCEPTS and words[7:] == [name]:
                found.append(Listener(address=name, process=_process_of(words[6])))
    return found


def _address(text: str) -> str:
    """An address of /proc/net/tcp: words of 32 bits in the host's order."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    if len(words) == 1:
        return socket.inet_ntop(socket.AF_INET, packed)
    return f"[{socket.inet_ntop(socket.AF_INET6, packed)}]"


def _process_of(inode: str) -> str:
    """The process that has a socket open; "" if this user may not see it."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for fd in (process / "fd").iterdir():
                with suppress(OSError):
                    if os.readlink(fd) == f"socket:[{inode}]":
                        name = (process / "comm").read_text().strip()
                        return f"{name} (pid {process.name})"
    return ""


def _files(directory: Path, user: str, *, deep: bool = False) -> list[File]:
    """A directory and its files; [] if there is none. Raises: PermissionError."""
    if not directory.exists():
        return []
    entries = directory.rglob("*") if deep else directory.iterdir()
    os.listdir(directory)  # rglob() is silent about a directory that it may not read
    paths = [path for path, _ in zip(entries, range(_FILES), strict=False)]
    found = [_file(directory, user)]
    for path in paths:
        with suppress(FileNotFoundError):  # a file of SQLite, or of a rename, that is gone now
            if not path.is_symlink():
                found.append(_file(path, user))
    # The whole is on one file system: said once.
    return [found[0], *(one for one in found[1:] if not one.read_only)] if found else []


def _is_in(file: File, directory: Path) -> bool:
    return Path(file.path).is_relative_to(directory)


def _is_of_git(file: File) -> bool:
    """Whether it is the .gitignore of `cordata new`, to which each checkout gives git's mode."""
    return Path(file.path).name == ".gitignore"


def _file(path: Path, user: str) -> File:
    status = path.stat()
    flags = os.statvfs(path).f_flag
    return File(
        path=str(path),
        owner=_name(status.st_uid),
        mode=stat.S_IMODE(status.st_mode),
        is_directory=stat.S_ISDIR(status.st_mode),
        read_only=bool(flags & os.ST_RDONLY),
        readable=_may_read(status, user),
    )


def _may_read(status: os.stat_result, user: str) -> bool:
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return True
    if entry.pw_uid in (0, status.st_uid):
        return bool(status.st_mode & 0o400) or entry.pw_uid == 0
    if status.st_gid in os.getgrouplist(user, entry.pw_gid):
        return bool(status.st_mode & 0o040)
    return bool(status.st_mode & 0o004)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _int(text: str) -> int:
    """A number of systemctl; "infinity" is a large one."""
    return int(text) if text.isdecimal() else 2**62 if text == "infinity" else 0


def _somaxconn() -> int:
    """The kernel's limit of a backlog; a large number where it does not tell."""
    try:
        return int(Path("/proc/sys/net/core/somaxconn").read_text())
    except (OSError, ValueError):
        return 2**63
