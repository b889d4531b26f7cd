"""`python -m tests.host.boot DEB`: the package in a throw-away host, and a shell in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.host.machine import Host, find_tree

_HINTS = """\
The hub runs in a Debian 13 of its own; leaving this shell throws it away. To try:
  systemctl status cordata.slice            journalctl -u 'worker@*' -f
  systemctl kill -s KILL worker@2           systemctl restart 'worker@*'
  curl -i http://127.0.0.1:8080/api/ready   alpinehub --help
"""


def main() -> int:
    """Boot, install, hand over the terminal. Returns the exit code of the shell."""
    deb = Path(sys.argv[1]).resolve()
    with Host(find_tree(), binds={deb: "/cordata.deb"}) as host:
        host.run("apt-get", "-qq", "-y", "install", "/cordata.deb")
        print(_HINTS, flush=True)
        shell = ["bash", "--login"] + (["-i"] if sys.stdin.isatty() else [])
        return subprocess.call(host.argv("TERM=xterm", *shell))


if __name__ == "__main__":
    sys.exit(main())
