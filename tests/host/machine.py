"""One booted host: systemd-nspawn over a shared Debian 13 tree that nothing ever writes to.

Needs root. PID 1 of the machine need not be systemd. Programs enter the host's namespaces with
nsenter, which is fifty times cheaper than a login; what nspawn would have taken from them is taken
here too, above all the right to set the clock: a container has none of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.host.command import CommandPlace
from tests.host.control_group import ControlGroup, has_systemd
from tests.host.disk import Disk
from tests.host.network import BRIDGE, Cable, Network, Way
from tests.servers.reaper import watched
from tests.waiting import until

#: The checkout, seen read-only by every host under /src.
CHECKOUT = Path(__file__).resolve().parents[2]
_DROPPED = "-sys_time,-sys_module,-sys_rawio,-wake_alarm,-mac_admin,-mac_override,-sys_boot,-syslog"


class HostError(Exception):
    """The host did not boot, or a command in it failed."""


def wait_for(
    condition: Callable[[], object], *, timeout_s: float = 60.0, what: str = "the condition"
) -> float:
    """Poll until `condition()` is true; returns the seconds it took. Raises: AssertionError.

    The default is for what may take long on a busy machine; a test that promises less says so.
    """
    begun = time.monotonic()
    until(condition, what, timeout_s=timeout_s)
    return time.monotonic() - begun


def find_tree() -> Path:
    """The Debian 13 tree that `packaging/build/tree` made; makes it when it is missing."""
    done = subprocess.run(
        [CHECKOUT / "packaging/build/tree"], check=True, stdout=subprocess.PIPE, text=True
    )
    return Path(done.stdout.strip())


class Host(CommandPlace):
    """A throw-away systemd host; with no `network` but loopback, or on a bridge (network.py)."""

    failure = HostError

    def __init__(
        self,
        tree: Path,
        *,
        binds: Mapping[Path, str] | None = None,
        network: Network | None = None,
        address: str | None = None,
        keep: Sequence[str] = (),
    ) -> None:
        """`binds`: further read-only directories or files, machine path -> path in the host.

        `address`: the network's next when not given. `keep`: directories of the host that are still
        there when it is started again after `lose_power`; all other files are as on the first day.
        """
        self.tree = tree
        self.network = network
        self.address = address or (network.next_address() if network else "127.0.0.1")
        self._disk = Disk(tree, keep)
        self.binds = {CHECKOUT: "/src", **(binds or {})}
        self.name = "cordata-" + uuid.uuid4().hex[:8]
        self._group = ControlGroup(self.name)
        self.console = Path(f"/run/{self.name}.console")
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._cable: Cable | None = None

    def start(self, *, timeout_s: float = 60.0) -> Host:
        """Boot and wait until systemd says that it is up. Raises: HostError with the console."""
        atexit.register(self.stop)
        self._group.make()
        keep = [] if has_systemd() else ["--keep-unit"]
        argv = ["systemd-nspawn", "-q", "-D", str(self.tree), "--volatile=overlay", *keep]
        argv += ["-M", self.name, f"--hostname={self.name}", f"--uuid={uuid.uuid4().hex}"]
        argv += ["--register=no", "--boot", "--console=pipe"]
        # IPAddressDeny= of a unit is a BPF program.
        argv.append("--system-call-filter=bpf")
        argv += ["--link-journal=no", "--resolv-conf=off", "--timezone=off"]
        argv += [f"--bind-ro={source}:{target}" for source, target in self.binds.items()]
        argv += self._disk.binds()
        if self.network:
            argv = self.network.argv(*argv, f"--network-bridge={BRIDGE}")
        else:
            argv.append("--private-network")
        argv = self._group.argv(*argv)
        with self.console.open("wb") as console:
            self._nspawn = watched(
                subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=console,
                    env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
                    start_new_session=True,
                ),
                then=f"rm -f {self.console}; {self._group.removal()}; {self._disk.removal()}",
            )
        end = time.monotonic() + timeout_s
        while not self._booted():
            if self._nspawn.poll() is not None or time.monotonic() > end:
                text = self.console.read_text(errors="replace")
                self.stop()
                raise HostError(f"{self.name} did not boot:\n{text}")
            time.sleep(0.02)
        return self

    def _booted(self) -> bool:
        if not self._pid:
            self._pid = self._find_pid()
            if self._pid and self.network:
                self._cable = self.network.plug(self._pid, self.address)
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = self.run("systemctl", "is-system-running", check=False, timeout_s=5)
            return done.stdout.strip() in ("running", "degraded")
        return False

    def _find_pid(self) -> int:
        assert self._nspawn is not None
        pid = self._nspawn.pid
        with contextlib.suppress(OSError):
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                if Path(f"/proc/{child}/comm").read_text() == "systemd\n":
                    return int(child)
        return 0

    def argv(self, *command: object) -> list[str]:
        """The machine's command line that runs `command` inside the host, as its root."""
        enter = ["nsenter", "-t", str(self._pid), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w"]
        drop = ["setpriv", f"--bounding-set={_DROPPED}", "--inh-caps=-all"]
        plain = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"]
        plain += ["DEBIAN_FRONTEND=noninteractive"]
        return [*enter, "--", *drop, "--", *plain, *map(str, command)]

    def sh(self, script: str, *, check: bool = True) -> str:
        """Run shell text in the host; returns its output without the last line end."""
        return self.run("sh", "-euc", script, check=check).stdout.rstrip("\n")

    def python(self, script: str, *words: object) -> list[object]:
        """Command that runs a file of tests/host by its text: a reboot takes /src away."""
        text = (CHECKOUT / "tests/host" / script).read_text()
        return ["python3", "-c", text, *words]

    def systemctl(self, *words: str, check: bool = True, timeout_s: float = 90.0) -> str:
        """Run systemctl; returns its output without the last line end."""
        return self.run("systemctl", *words, check=check, timeout_s=timeout_s).stdout.rstrip("\n")

    def props(self, unit: str, *names: str) -> dict[str, str]:
        """Properties of a unit, as `systemctl show` prints them."""
        text = self.systemctl("show", unit, *(f"-p{name}" for name in names))
        return dict(line.split("=", 1) for line in text.splitlines() if line)

    def main_pid(self, unit: str) -> int:
        """Main process of a unit, 0 when it has none. A number of the host, not of the machine."""
        return int(self.props(unit, "MainPID")["MainPID"])

    def kill(self, signal_name: str, pid: int) -> None:
        """Send a signal to a process of the host. Raises: HostError for 0, a unit's without one.

        kill(1) would take that for its own process group, which is that of the tests.
        """
        if pid <= 0:
            raise HostError(f"no process to send {signal_name} to: {pid}")
        self.run("kill", f"-{signal_name}", pid)

    def cursor(self) -> str:
        """The end of the journal now, for `journal(since=...)`."""
        text = self.run("journalctl", "-n", "0", "--show-cursor", "-q").stdout
        return text.split("-- cursor: ")[-1].strip()

    def journal(self, *match: str, since: str | None = None) -> list[dict[str, str]]:
        """Journal entries, oldest first. `match` are journalctl's own words (`-u`, `FIELD=x`)."""
        after = [f"--after-cursor={since}"] if since else []
        command = ["journalctl", "-o", "json", "--no-pager", "-q", *after, *match]
        return [json.loads(line) for line in self.run(*command).stdout.splitlines()]

    def path(self, path: str) -> Path:
        """A path of the host, as the machine sees it (do not follow absolute links through it)."""
        return Path(f"/proc/{self._pid}/root") / path.lstrip("/")

    def reboot(self, *, timeout_s: float = 60.0) -> None:
        """Stop everything in order and boot anew; files stay (systemd-soft-reboot.service(8))."""
        count = int(self._soft_reboots()) + 1
        self.systemctl("soft-reboot")
        wait_for(
            lambda: self._soft_reboots() == str(count) and self._booted(),
            timeout_s=timeout_s,
            what="the boot",
        )

    def _soft_reboots(self) -> str:
        # A manager that is just executing itself anew may never answer: asked again, then.
        with contextlib.suppress(subprocess.TimeoutExpired):
            shown = self.systemctl("show", "-pSoftRebootsCount", check=False, timeout_s=2)
            return shown.removeprefix("SoftRebootsCount=")
        return ""

    def cut(self, way: Way = "both") -> None:
        """Cut it off the network; `in`: it hears nobody, `out`: nobody hears it."""
        assert self._cable
        self._cable.cut(way)

    def heal(self) -> None:
        """Undo `cut`."""
        assert self._cable
        self._cable.heal()

    def lose_power(self) -> None:
        """Off at once: no process ends in order, and its peers are sent no goodbye."""
        if self._cable:
            self._cable.cut()  # first, or the kernel would close its connections as it dies
        self._off()

    def stop(self) -> None:
        """Kill the whole host; nothing of it stays. Legal at any time and twice."""
        atexit.unregister(self.stop)
        self._off()
        self._disk.remove()

    def _off(self) -> None:
        if self._pid and self._nspawn and self._nspawn.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)  # its PID 1: the kernel kills all the others
        if self._nspawn:
            try:
                self._nspawn.wait(10 if self._pid else 0)
            except subprocess.TimeoutExpired:
                self._nspawn.kill()
                self._nspawn.wait()
        self._nspawn = self._cable = None
        self._pid = 0
        self._group.remove()
        self.console.unlink(missing_ok=True)

    def __enter__(self) -> Host:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
