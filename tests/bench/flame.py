"""A flame graph of the workers under durable webhooks: which code their Python time goes to.

python -m tests.bench.flame OUT.svg [--store sqlite|postgres] [--checkout DIR] [--seconds 10]

Needs py-spy (pip install py-spy), which does not know a Python that another program has loaded: so
run it with an interpreter of the machine, not with that of a tree. Only samples that hold the
interpreter count. Each process has a column of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.bench.servers import POSTGRES, ROOT, hub
from tests.bench.webhook import fresh, wrk
from tests.servers.postgres import PostgresServer
from tests.servers.reaper import watched


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="postgres")
    parser.add_argument("--checkout", type=Path, default=ROOT)
    parser.add_argument("--seconds", type=int, default=10)
    options = parser.parse_args()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server = None
        if options.store == "postgres":
            server = stack.enter_context(PostgresServer(durable=True, settings=POSTGRES))
        url = stack.enter_context(fresh(server))
        running = stack.enter_context(hub(scratch, url, checkout=options.checkout.resolve()))
        wrk(running, seconds=2, run="warm")
        argv = ["py-spy", "record", "--subprocesses", "--gil", "--function", "-r", "250"]
        argv += ["-d", str(options.seconds), "-o", str(options.out), "-p", str(running.pid)]
        with watched(subprocess.Popen(argv)) as spy:
            wrk(running, seconds=options.seconds + 1, run="run")
        assert spy.returncode == 0, "py-spy failed"


if __name__ == "__main__":
    main()
