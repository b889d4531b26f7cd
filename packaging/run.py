"""`make run`: the hub with a demo hotel, in the foreground: `run.py PORT STATE`.

Says one line `ready URL` once four workers, the primary and the demo hotel are there. INT, TERM and
HUP stop all in order. The exit code is that of `cordata server`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1
#: A unix socket's path has 107 bytes; this is what the names below the runtime directory may take.
_SOCKET_NAME_BYTES = 60

_TO_TRY = """\
A booking form posts a request; it is on disk before the answer:
  curl -sS {url}/api/webhook/generic -H 'X-Webhook-Secret: demo' -H 'Content-Type: application/json' \\
    -d '{{"hotel_code": "DEMO", "status": "request", "external_id": "form-1", "arrival": "2027-02-01", "departure": "2027-02-08", "adults": 2, "first_name": "Eva", "last_name": "Muster", "email": "eva@example.com"}}'
The hotel's software fetches it, until it acknowledges it:
  curl -sS {url}/api/alpinebits -u demo:demo -H 'X-AlpineBits-ClientProtocolVersion: 2024-10' -F action=OTA_Read:GuestRequests \\
    --form-string 'request=<OTA_ReadRQ xmlns="http://www.opentravel.org/OTA/2003/05" Version="1.001"><ReadRequests><HotelReadRequest HotelCode="DEMO"/></ReadRequests></OTA_ReadRQ>'
Is it well?
  curl -sS {url}/api/ready
Data is in {state}, your settings in cordata.toml there; Ctrl-C stops it in order.
"""  # noqa: E501 - lines to copy


def check(port: str, state: str) -> None:
    """Exit with an error before anything is made, if one of them cannot be used."""
    number = int(port) if port.isascii() and port.isdecimal() and len(port) < 6 else -1
    if not 0 <= number <= 65535:
        sys.exit(f"error: PORT={port} is no port\nhint: make run PORT=8080")
    try:
        socket.create_server(("127.0.0.1", number)).close()
    except OSError as error:
        hint = f"hint: make run PORT={number % 65535 + 1}"
        sys.exit(f"error: port {port} of 127.0.0.1 cannot be used: {error.strerror}\n{hint}")
    if not state or (Path(state).exists() and not Path(state).is_dir()):
        sys.exit(f"error: STATE={state} is no directory\nhint: make run STATE=.run")


def prepare(state: Path) -> Path:
    """Make the state directory and the configuration in it; returns the file.

    What the file has already stays: it has the user's settings.
    """
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        hint = "hint: make run STATE=.run"
        sys.exit(f"error: STATE={state} cannot be made: {error.strerror}\n{hint}")
    runtime = state / "run"
    if len(os.fsencode(runtime)) > 107 - _SOCKET_NAME_BYTES:
        runtime = own_temporary(f"cordata-{os.getuid()}-{state.stat().st_ino}")
    runtime.mkdir(mode=0o700, exist_ok=True)
    paths = f'state = "{state}"\nruntime = "{runtime}"\ncredentials = "{state / "credentials"}"\n'
    # Written at every start: the directory may have been moved. The paths have a file of their own,
    # since one that names an application is not read if the user's file names another.
    for name, text in (
        ("app", '[app]\nimport = "alpinehub.app:app"\n'),
        ("run", f"[paths]\n{paths}"),
    ):
        drop_in = state / "conf.d" / f"{name}.toml"
        drop_in.parent.mkdir(mode=0o700, exist_ok=True)
        drop_in.write_text(f"# `make run` writes this file at every start.\n{text}")
    config = state / "cordata.toml"
    if not config.exists():
        config.write_text("# Settings of your own; docs/reference/configuration.md has them all.\n")
    return config


def own_temporary(name: str) -> Path:
    """A directory for this user alone. The name can be guessed, so that somebody else may have made
    it, with a socket to which our commands would connect.
    """
    directory = Path(tempfile.gettempdir()) / name
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        hint = "hint: remove it, or choose a shorter STATE: `make run STATE=.run`"
        sys.exit(f"error: {directory} is not a directory of yours alone (0700)\n{hint}")
    return directory


@contextlib.contextmanager
def own_foreground_group() -> Iterator[None]:
    """At a terminal, leave make's process group, so that only this process gets Ctrl-C: make would
    report a failure.

    Without a terminal, stay in the group: a signal to the group is then for this process, too.
    """
    tty = sys.stdin.fileno() if sys.stdin and sys.stdin.isatty() else -1
    group = os.getpgrp()
    if tty < 0 or group == os.getpid() or os.tcgetpgrp(tty) != group:
        yield
        return
    # SIGTTOU stops a background process that changes the terminal's group, so ignore it.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    # Ctrl-Z would stop this process for ever: make does not watch for that.
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    os.setpgid(0, 0)
    os.tcsetpgrp(tty, os.getpgrp())
    try:
        yield
    finally:
        os.tcsetpgrp(tty, group)


def start_server(port: str, config: Path) -> subprocess.Popen[str]:
    """`cordata server`; its log goes to our stderr, its one line comes through the pipe."""
    libc = ctypes.CDLL(None)
    command = [sys.executable, "-m", "cordata", "server", "--workers", "4", "--restart"]
    command += ["--listen", f"127.0.0.1:{port}", "--config", str(config)]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        # When this process is killed with SIGKILL, the hub gets SIGTERM.
        preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
    )


def run_once(*words: str, config: Path) -> bool:
    """A command that ends; what it says goes to stderr. Returns whether it succeeded."""
    environment = {**os.environ, "CORDATA_CONFIG": str(config)}
    code = f"from {words[0]}.cli import main; main()"
    command = [sys.executable, "-c", code, *words[1:]]
    done = subprocess.run(command, env=environment, stdout=sys.stderr, stdin=subprocess.DEVNULL)
    return done.returncode == 0


def serve(port: str, state: Path) -> int:
    """Run until stopped. Returns the exit code."""
    config = prepare(state)
    if not run_once("cordata", "credentials", "init", config=config):
        return 1
    server = start_server(port, config)
    stopping = failed = False

    def stop(number: int, frame: object) -> None:
        nonlocal stopping
        stopping = True
        server.send_signal(signal.SIGTERM)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    assert server.stdout
    for line in server.stdout:
        word, _, url = line.strip().partition(" ")
        if word == "ready" and not stopping:
            if run_once("alpinehub", "demo", config=config):
                print(f"ready {url}\n{_TO_TRY.format(url=url, state=state)}", flush=True)
            elif not stopping:
                server.terminate()
                failed = True
    return server.wait() or failed


def main() -> int:
    """Arguments: port, state directory."""
    port, state = sys.argv[1:]
    check(port, state)
    os.umask(0o077)  # guests' data: as the units have it
    with own_foreground_group():
        return serve(port, Path(state).absolute())


if __name__ == "__main__":
    sys.exit(main())
