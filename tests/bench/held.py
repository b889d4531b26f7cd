"""A process that is measured: it says that it is up, and begins when it is told to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tests.bench.servers import ROOT, environment
from tests.servers.reaper import watched


@contextmanager
def held(module: str, *words: object) -> Iterator[subprocess.Popen[str]]:
    """`python -m module words`, which has printed `up` and waits for a line on stdin."""
    with watched(
        subprocess.Popen(
            [sys.executable, "-m", module, *map(str, words)],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        try:
            yield process
        finally:
            process.terminate()


def go(processes: Iterable[subprocess.Popen[str]]) -> None:
    """Let them begin."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.close()
