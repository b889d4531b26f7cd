"""A control group for each host, on a machine whose PID 1 is not systemd.

systemd-nspawn would put all hosts into one group there, and the systemd of each host takes that
whole group for its own: it kills processes of another host whose unit has the same name.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

_TREE = Path("/sys/fs/cgroup")
#: Version 2 of control groups as systemd-nspawn finds it: alone, or beside version 1. Then it makes
#: each group in systemd's own hierarchy of version 1, too.
_HIERARCHIES = ((_TREE,), (_TREE / "unified", _TREE / "systemd"))


class ControlGroup:
    """The group of one host; all of the host is in it, and its systemd-nspawn."""

    def __init__(self, name: str) -> None:
        #: Its directories, that of version 2 first; none when it is not for us to make.
        self.paths: list[Path] = []
        for roots in _HIERARCHIES:
            if (roots[0] / "cgroup.procs").exists() and not has_systemd():
                self.paths = [root / name for root in roots]

    def make(self) -> None:
        """Make the group; where it cannot be made, the host is in that of all hosts."""
        if self.paths:
            try:
                self.paths[0].mkdir(exist_ok=True)
            except OSError:
                self.paths = []

    def argv(self, *command: str) -> list[str]:
        """The command line that runs `command` in the group, if there is one."""
        if not self.paths:
            return list(command)
        enter = 'echo $$ >"$0"/cgroup.procs && exec "$@"'
        return ["sh", "-c", enter, str(self.paths[0]), *command]

    def removal(self) -> str:
        """Shell text that kills what is left in the group and removes it."""
        if not self.paths:
            return ":"
        # A group is empty only when the kernel has taken the last process apart.
        return f"""set -- {shlex.join(map(str, self.paths))}
            [ ! -e "$1/cgroup.kill" ] || echo 1 >"$1/cgroup.kill"
            for group; do
                n=0
                while [ -d "$group" ] && [ $((n += 1)) -le 100 ]; do
                    find "$group" -depth -type d -exec rmdir {{}} ';' 2>/dev/null
                    [ ! -d "$group" ] || sleep 0.05
                done
            done"""

    def remove(self) -> None:
        """Remove it, with all that is in it. Legal twice."""
        if any(path.exists() for path in self.paths):
            subprocess.run(["sh", "-c", self.removal()], check=True)


def has_systemd() -> bool:
    """Whether systemd is PID 1 of the machine: it makes a scope for each host."""
    return Path("/run/systemd/system").is_dir()
