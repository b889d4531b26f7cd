"""The pool under systemd, while its processes are killed, restarted, drained and replaced."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import textwrap
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.host.machine import Host, wait_for
from tests.integration.pool.chaos.callers import Progress
from tests.integration.pool.chaos.chaos import judge_guests
from tests.integration.pool.chaos.guests import KINDS, Guests
from tests.integration.pool.chaos.house import APP, SETTINGS
from tests.servers.process import children as children_of
from tests.servers.reaper import watched

WORKERS = 4
SEED = int(os.environ.get("CHAOS_SEED", "3"))
EVIDENCE = "/var/lib/cordata/evidence"
#: What guests write.
BOOKS = "/root/guests"
#: What is done to the pool, and how often; each at least once.
ACTS = {
    **{"child": 12, "worker": 4, "restart worker": 3},
    **{"drain": 2, "recycle": 2, **dict.fromkeys(KINDS, 1)},
}
#: So many clients are killed, and stand still, at most: their calls are the proof.
CLIENTS = 3
#: For all that, however busy the machine is.
PATIENCE_S = 300.0


def begun(host: Host, *command: str) -> subprocess.Popen[Any]:
    """A command that runs on; what it says is seen when the test fails."""
    return watched(subprocess.Popen(host.argv(*command), stdin=subprocess.DEVNULL))


def state_of(pid: int) -> str:
    """As proc_pid_stat(5) has it; "" of none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


class Visitors(Guests):
    """Clients on the host: 3,000 orders in all."""

    at_once, callers, most = 3, 5, 10

    def __init__(self, host: Host) -> None:
        super().__init__(Path("/run/cordata/pool"), Path(BOOKS), SEED, {})
        self._host = host

    def start(self, number: int) -> subprocess.Popen[Any]:
        path = "PYTHONPATH=/usr/share/cordata:/src"
        return begun(self._host, "env", path, "python3", *self.words(number))

    def send(self, process: subprocess.Popen[Any], number: signal.Signals) -> None:
        """To the program; who waits for it stops and goes on with it.

        But it stops when it hears that the program did, which may be after both were to go on.
        """
        self._signal(process, number)
        calm = 0
        while number == signal.SIGCONT and calm < 10 and process.poll() is None:
            time.sleep(0.05)
            calm = 0 if state_of(process.pid) == "T" else calm + 1
            if not calm:
                self._signal(process, number)

    def _signal(self, process: subprocess.Popen[Any], number: signal.Signals) -> None:
        for pid in [*children_of(process.pid), process.pid]:
            if process.poll() is None and (number != signal.SIGKILL or pid != process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def file(self, number: int) -> Path:
        return self._host.path(str(super().file(number)))


class Killer:
    """Does one thing to the pool after the other; `done` counts them."""

    def __init__(self, host: Host, visitors: Visitors) -> None:
        self._host, self._visitors = host, visitors
        self._rng = random.Random(SEED)
        self.done: Counter[str] = Counter()
        self._background: list[subprocess.Popen[Any]] = []

    def run(self) -> None:
        """Until nobody calls any more."""
        first = self._rng.sample([*ACTS], len(ACTS))
        end = time.monotonic() + PATIENCE_S
        while not self._visitors.over:
            assert time.monotonic() < end, "callers do not come to their end"
            kind = first.pop() if first else self._rng.choices([*ACTS], [*ACTS.values()])[0]
            if kind in KINDS and self.done[kind] == CLIENTS:
                continue
            worker = str(self._rng.randrange(WORKERS))
            self.done[kind] += self._act(kind, worker)
            time.sleep(self._rng.choice((0.0, 0.2) if first else (0.0, 0.3, 1.0, 1.5)))
        assert not first, f"nobody called any more before {first}"
        for process in self._background:
            process.wait(30)

    def _act(self, kind: str, worker: str) -> bool:
        host, unit = self._host, f"worker@{worker}.service"
        if kind in KINDS:
            return self._visitors.kill(kind, self._rng)
        if kind == "child":
            # By the machine's numbers, which is who reads the file. The main process is first.
            pids = sorted(group(host, unit))
            for pid in pids[1:]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return len(pids) > 1
        if kind in ("drain", "recycle"):
            words = f"cordata pool {kind} {worker}"
            if kind == "drain":
                words += f"; sleep 0.3; cordata pool drain --undo {worker}"
            self._background.append(begun(host, "sh", "-c", words))
            return True
        if kind.startswith("restart"):
            host.systemctl("restart", "--no-block", unit)
        else:
            host.systemctl("kill", "--kill-whom=main", "--signal=KILL", unit, check=False)
        return True


def group(host: Host, unit: str) -> list[int]:
    """Processes of a unit, by the machine's numbers; none while it is not up."""
    for found in host.path("/sys/fs/cgroup/cordata.slice").rglob(unit):
        with suppress(OSError):  # it goes down just now
            return [int(pid) for pid in (found / "cgroup.procs").read_text().split()]
    return []


def install(host: Host) -> None:
    """The chaos' application, from the checkout; the evidence lies where workers may write."""
    text = f'''
        [app]
        import = "{APP}"
        path = ["/src"]
        [worker]
        services = ["pool"]
        [pool]
    '''
    host.path("/etc/cordata/cordata.toml").write_text(textwrap.dedent(text) + SETTINGS)
    host.sh(f"mkdir {BOOKS}; install -o cordata -m 600 /dev/null {EVIDENCE}")
    for unit in ("worker@.service", "primary.service"):
        host.sh(f"mkdir -p /etc/systemd/system/{unit}.d")
        drop_in = host.path(f"/etc/systemd/system/{unit}.d/chaos.conf")
        drop_in.write_text(f"[Service]\nEnvironment=CHAOS_EVIDENCE={EVIDENCE}\n")
    host.systemctl("daemon-reload")
    host.systemctl("restart", "cordata.target")


def calm(host: Host) -> Any:
    """The workers, when each has its child and that nothing in hand; else None."""
    done = host.run("cordata", "pool", "status", "--json", check=False)
    if done.returncode:
        return None
    workers = json.loads(done.stdout)["workers"]
    children = [
        (child["state"], child["waiting"]) for worker in workers for child in worker["children"]
    ]
    processes = [len(group(host, f"worker@{n}.service")) for n in range(WORKERS)]
    expected = ([("ready", 0)] * WORKERS, [2] * WORKERS)
    return workers if (children, processes) == expected else None


def test_every_call_ends_well_or_in_a_typed_error_when_units_and_processes_die(host: Host) -> None:
    install(host)
    wait_for(lambda: calm(host), what="four children")
    cursor, progress = host.cursor(), Progress()
    watch = threading.Thread(target=progress.watch, daemon=True)
    watch.start()
    began = time.monotonic()
    visitors = Visitors(host)
    with visitors:
        killer = Killer(host, visitors)
        killer.run()
        took_s = time.monotonic() - began
        visitors.finish()
        progress.finish()
        faults = judge_guests(visitors, progress, host.path(EVIDENCE))
        ends = Counter(
            ("ok" if order.ok else type(order.outcome).__name__) if order.took_s >= 0 else "killed"
            for _, orders in visitors.ended()
            for order in orders
        )
    print(f"{ends.total()} calls in {took_s:.0f} s; {dict(killer.done)}; {dict(ends)}")
    wait_for(lambda: calm(host), what="calm")
    done = host.run("cordata", "pool", "sessions", "--json")
    assert json.loads(done.stdout)["items"] == []
    said = host.journal("-u", "worker@*", since=cursor)
    faults += [entry["MESSAGE"] for entry in said if "Traceback" in entry["MESSAGE"]]
    assert not faults, "\n".join(faults[:40])
    host.systemctl("stop", "cordata.target", "worker@*", "primary.service")
    left = host.path("/sys/fs/cgroup/cordata.slice").rglob("cgroup.procs")
    assert [pid for file in left for pid in file.read_text().split()] == []
