"""Runs the `cordata` command, and programs that use the library, for real."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def cordata(
    *arguments: str, given: str | None = None, cwd: str | Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Exit code, stdout and stderr of one command, `given` on its stdin."""
    return python("-m", "cordata", *arguments, given=given, cwd=cwd, **environment)


def python(
    *arguments: str, given: str | None = None, cwd: str | Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The same of a program of one's own beside the checkout."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("CORDATA_", "LISTEN_"))}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**inherited, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}", **environment},
        input=given,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


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
