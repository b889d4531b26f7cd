"""`python -m tests.host.boot DIRECTORY`: the packages there in a throw-away host, and a shell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.host.machine import Host, find_tree
from tests.host.package import Packages, install

_HINTS = """\
The hub runs in a Debian 13 of its own; leaving this shell throws it away. To try:
  systemctl status cordata.slice            journalctl -u 'worker@*' -f
  systemctl kill -s KILL worker@2           systemctl restart 'worker@*'
  curl -i http://127.0.0.1:8080/api/ready   alpinehub --help
"""


def main() -> int:
    """Boot, install, hand over the terminal. Returns the exit code of the shell."""
    debs = Packages.of(Path(sys.argv[1]).resolve())
    with Host(find_tree(), binds=debs.binds()) as host:
        install(host)
        print(_HINTS, flush=True)
        # A terminal of the host's own; the machine's is none there, and bash could control no jobs.
        terminal = ["script", "--quiet", "--return", "--command", "bash --login", "/dev/null"]
        shell = terminal if sys.stdin.isatty() else ["bash", "--login"]
        code = subprocess.call(host.argv("TERM=xterm", *shell))
    # At a terminal the last command's code is nobody's failure.
    return 0 if sys.stdin.isatty() else code


if __name__ == "__main__":
    sys.exit(main())
