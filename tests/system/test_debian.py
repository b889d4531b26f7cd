"""The other tests once more, in a Debian 13 host on Debian's own libraries."""

from __future__ import annotations

import os

import pytest
from tests.host.machine import CHECKOUT, Host, find_tree

#: Schemas and sample messages that lie beside the checkout, if they do.
_SHARED = CHECKOUT.parent / "shared"
#: Redis 8 and Valkey 8; in a virtual environment on Debian 12 it is Redis 7.
_BROKERS = ("redis-server", "valkey-server")


def test_all_pass_when_they_run_on_debians_libraries(capsys: pytest.CaptureFixture[str]) -> None:
    binds = {_SHARED: "/shared"} if _SHARED.is_dir() else {}
    words = [
        "env",
        "--chdir=/src",
        "PYTHONDONTWRITEBYTECODE=1",
        "HYPOTHESIS_STORAGE_DIRECTORY=/tmp/hypothesis",
    ]
    words += [f"CI={os.environ.get('CI', '')}", "python3", "-m", "pytest", "-q"]
    words += ["-n", "3", "--dist", "worksteal"]
    words += ["-p", "no:cacheprovider", "tests/unit", "tests/contract", "tests/integration"]
    with Host(find_tree(), binds=binds) as host:
        # Where one is missing, the tests for it would be left out without a word.
        for program in (*_BROKERS, "pgbouncer"):
            host.run(program, "--version")
        done = host.run(*words, check=False, timeout_s=1800)
    with capsys.disabled():
        print("\nin Debian 13:", done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
