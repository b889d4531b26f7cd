"""`python -m tests.host.suite [WORD...]`: the tests in a Debian 13 host, on Debian's Python.

That is what the package runs on. Words are pytest's; without a path among them it runs the unit,
contract and integration tests and the oracle. Needs root.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.host.machine import CHECKOUT, Host, find_tree

_ALL = ("tests/unit", "tests/contract", "tests/integration", "tests/oracle")
#: A copy of the checkout, into which programs write their bytecode.
_COPY = "/srv/checkout"
_NOT_COPIED = ("__pycache__", "./.git", "./.run", "./dist", "./.hypothesis", "'./.*_cache'")
#: What earlier runs compiled.
_BYTECODE = "bytecode-"
#: Where one of them is missing, the tests for it would be left out without a word.
_PROGRAMS = ("redis-server", "valkey-server", "pgbouncer", "promtool")
#: What `make` passes on to the tests.
_PASSED_ON = ("CI", "EXAMPLES", "ORACLE")


def run_suite(words: Sequence[str]) -> int:
    """Boot a host, run pytest there. Returns pytest's exit code."""
    # Schemas and sample messages that lie beside the checkout, if they do.
    shared = Path(os.environ.get("CORDATA_SHARED") or CHECKOUT.parent / "shared").absolute()
    binds = {shared: "/srv/shared"} if shared.is_dir() else {}
    passed_on = [f"{name}={os.environ[name]}" for name in _PASSED_ON if name in os.environ]
    paths = [] if any(word.startswith("tests/") for word in words) else _ALL
    tree = find_tree()
    bytecode = tree.parent / (_BYTECODE + hashlib.sha256(os.fsencode(CHECKOUT)).hexdigest()[:16])
    with Host(tree, binds=binds) as host:
        for program in _PROGRAMS:
            host.run(program, "--version")
        leave = " ".join(f"--exclude={name}" for name in _NOT_COPIED)
        host.sh(f"mkdir -p {_COPY}; tar -C /src {leave} -c . | tar -C {_COPY} -x")
        copy = host.path(_COPY)
        environment = ["env", f"--chdir={_COPY}", "HYPOTHESIS_STORAGE_DIRECTORY=/tmp/hypothesis"]
        pytest = ["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        if bytecode.exists():
            # Python compares times and sizes, and compiles again what has changed.
            subprocess.run(["tar", "-C", copy, "-xf", bytecode], check=True)
        else:
            # One process compiles what else each would: 8 s of processor time.
            collect = host.argv(*environment, *pytest, "--collect-only", *_ALL)
            subprocess.run(collect, stdout=subprocess.DEVNULL)
        run = host.argv(*environment, *passed_on, *pytest, *words, *paths)
        code = subprocess.run(run).returncode
        _save(copy, bytecode)
        return code


def _save(copy: Path, bytecode: Path) -> None:
    """Keep the bytecode of a checkout's copy for the next run."""
    new = bytecode.with_name(f".{bytecode.name}.{os.getpid()}")
    find = ["find", ".", "-name", "*.pyc", "-print0"]
    found = subprocess.run(find, cwd=copy, check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-C", copy, "--null", "-T", "-", "-cf", new], input=found, check=True)
    new.replace(bytecode)


if __name__ == "__main__":
    sys.exit(run_suite(sys.argv[1:]))
