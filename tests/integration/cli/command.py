"""Runs the `cordata` command, and programs that use the library, for real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.servers import fork_server

ROOT = Path(__file__).parents[3]
#: Long-running processes of the service: each has an interpreter of its own.
_ROLES = ("server", "worker", "primary")


def cordata(
    *arguments: str, given: str | None = None, cwd: str | Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Exit code, stdout and stderr of one command, `given` on its stdin."""
    if (arguments[:1] and arguments[0] in _ROLES) or any(map(_is_of_python, environment)):
        return python("-m", "cordata", *arguments, given=given, cwd=cwd, **environment)
    return fork_server.run(
        "cordata", arguments, given=given, cwd=cwd, environment=_environment(environment)
    )


def python(
    *arguments: str, given: str | None = None, cwd: str | Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The same of a program of one's own beside the checkout."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=_environment(environment),
        input=given,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _is_of_python(name: str) -> bool:
    """Whether the interpreter itself reads a variable, at its start."""
    return name.startswith("PYTHON")


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("CORDATA_", "LISTEN_"))}
    return {**inherited, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}", **more}


def write_config(
    directory: Path, text: str = "", app: str = "tests.integration.cli.shop:app"
) -> Path:
    """A configuration whose directories all lie in `directory`."""
    path = directory / "cordata.toml"
    for name in ("state", "run"):
        (directory / name).mkdir(exist_ok=True)
    path.write_text(
        f'[app]\nimport = "{app}"\n[paths]\nstate = "state"\nruntime = "run"\n'
        f'credentials = "credentials"\n{text}'
    )
    return path
