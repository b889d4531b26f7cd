"""The archive of `cordata report-bug`: texts, with secrets masked."""

from __future__ import annotations

import io
import os
import platform
import sqlite3
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from importlib import metadata

from cordata import __version__
from cordata.config import Config, find_file, open_document
from cordata.config.show import lines
from cordata.doctor.examination import Subject
from cordata.errors import ConfigError
from cordata.systemd import Credentials, is_booted
from cordata.systemd.systemctl import Unit, run_program

_LINES = 2000
#: Of Debian, beside that of the application.
_PACKAGES = ("cordata", "systemd", "postgresql", "redis-server", "valkey-server")

README = """\
A report about an installation of cordata, made by `cordata report-bug`.

  versions.txt        cordata, Python, libraries, packages, kernel
  configuration.toml  every setting in effect; secrets and the passwords of URLs are masked
  doctor.json         what `cordata doctor` finds
  status.json         what `cordata status --json` prints
  units.txt           state of the units
  journal.txt         the last {lines} lines of the units

There is no personal data in it, and of events and mails only their number. cordata logs none of it,
either; an application and its libraries may log anything. Names of hosts and users, and the mail
addresses of the settings, are in it. Look at it before you send it.
"""


def pack(name: str, texts: Mapping[str, str]) -> bytes:
    """A .tar.gz of these texts, by file name, in the directory `name`."""
    now, packed = int(time.time()), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for inner, text in texts.items():
            data = text.encode(errors="replace")
            entry = tarfile.TarInfo(f"{name}/{inner}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, now
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


async def collect(subject: Subject, config: str | None, units: Sequence[Unit]) -> dict[str, str]:
    """All texts but those of status and doctor; as root, who may read the journal."""
    return {
        "README.txt": README.format(lines=f"{_LINES:,}"),
        "versions.txt": "\n".join([line async for line in _versions(subject)]) + "\n",
        "configuration.toml": "\n".join(_configuration(subject, config)) + "\n",
        "units.txt": _units(units),
        "journal.txt": await _journal(subject.config, units),
    }


async def _versions(subject: Subject) -> AsyncIterator[str]:
    app = subject.app.name if subject.app is not None else ""
    yield f"cordata {__version__} with {app or 'no application'}"
    yield f"Python {sys.version}"
    yield f"{platform.platform()}, {os.cpu_count()} processors"
    yield f"SQLite {sqlite3.sqlite_version}"
    known = metadata.packages_distributions()
    imported = {name for module in sys.modules for name in known.get(module, ())}
    for name in sorted(imported):
        yield f"{name} {metadata.version(name)}"
    form = "--showformat=${Package} ${Version} ${db:Status-Status}\\n"
    _, text = await run_program("dpkg-query", "--show", form, *_PACKAGES, *filter(None, [app]))
    for line in text.splitlines():
        if not line.startswith("dpkg-query:"):
            yield line


def _configuration(subject: Subject, config: str | None) -> Iterator[str]:
    """The settings in effect, or of a broken file what is valid, below its problems."""
    yield from (f"# {one.state}: {one.text}" for one in subject.findings if one.state != "ok")
    try:
        document = open_document(find_file(config))
    except ConfigError:
        yield "# the file cannot be read: defaults"
        return
    names = Credentials(subject.config.paths.credentials).names()
    yield from lines(subject.config, document, names)


def _units(units: Sequence[Unit]) -> str:
    if not units:
        return "systemd does not run here\n"
    blocks = ("".join(f"{key}={value}\n" for key, value in unit.items()) for unit in units)
    return "\n".join(blocks)


async def _journal(config: Config, units: Sequence[Unit]) -> str:
    if not is_booted():
        return "systemd does not run here: the log is where `cordata server` wrote it\n"
    if config.log.level == "debug":
        return (
            '[log] level is "debug": the journal may quote personal data, so it was left out.\n'
            'Set it to "info", reproduce the fault, and run `cordata report-bug` again.\n'
        )
    wanted = [word for unit in units for word in ("-u", unit["Id"])]
    wanted += ["-u", "worker@*", "-u", "alert@*", "-u", "job@*"]
    form = ("--no-pager", "--quiet", "--output=short-iso-precise", f"--lines={_LINES}")
    _, text = await run_program("journalctl", *form, *wanted)
    return text or "no line of the units, or this user may not read the journal\n"
