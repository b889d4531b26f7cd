"""A loop that ends with something left open: it ends, and whoever wants to know is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = Path(__file__).with_name("leaves_open.py")


@pytest.mark.parametrize(
    ("how", "action", "said", "code"),
    [
        ("role", "default", "ResourceWarning: unclosed resource <UnixTransport", 0),
        ("role", "error", "\nResourceWarning: unclosed resource <UnixTransport", 1),
        ("well", "error", "\nResourceWarning: unclosed resource <UnixTransport", 1),
        ("badly", "error", "\nLookupError: of its own", 1),
    ],
    ids=["role", "role-strict", "test-strict", "failed-test-strict"],
)
def test_loop_ends_when_a_transport_was_left_open(
    how: str, action: str, said: str, code: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", f"{action}::ResourceWarning", str(_PROGRAM), how],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
