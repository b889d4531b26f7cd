"""Commands that run elsewhere: in a host, or outside of all of them on their network."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from typing import ClassVar

from tests.servers.reaper import watched


class CommandPlace(ABC):
    """Where commands run."""

    #: What `run` raises.
    failure: ClassVar[type[Exception]]

    @abstractmethod
    def argv(self, *command: object) -> list[str]:
        """The machine's command line that runs `command` there."""

    def run(
        self,
        *command: object,
        check: bool = True,
        timeout_s: float = 90.0,
        stdin: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command. Raises: `failure` with its output when that fails."""
        done = subprocess.run(
            self.argv(*command),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if check and done.returncode:
            words = " ".join(map(str, command))
            raise self.failure(f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def popen(self, *command: object) -> subprocess.Popen[str]:
        """Start a command with pipes on its three streams."""
        pipe = subprocess.PIPE
        return watched(
            subprocess.Popen(self.argv(*command), text=True, stdin=pipe, stdout=pipe, stderr=pipe)
        )
