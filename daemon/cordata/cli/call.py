"""`cordata call`: one command of the pool, from a shell."""

from __future__ import annotations

from time import monotonic
from typing import IO, Any

import click

from cordata import exit_codes
from cordata.app_loader import load_runtime
from cordata.cli.options import state_dir_option, with_state_dir
from cordata.cli.pool_sockets import wait_until_listening
from cordata.context_factory import call_timeout_s, pool_directory
from cordata.errors import (
    ChildCrashed,
    CommandFailed,
    CommandUnknown,
    CordataError,
    DeadlineExceeded,
    PoolTransient,
    SessionNotFound,
    SessionQuotaExceeded,
)
from cordata.pool import SyncClient
from cordata.pool.client.values import check_call, from_json
from cordata.terminal import Command, config_option, printable, report


@click.command(
    cls=Command,
    examples="""
        cordata call render --json '{"room": "7"}'
        cordata call validate --file push.json --timeout 5 --idempotent
        jq .order basket.json | cordata call price --file - --session 3f2a
        cordata call export --json '{"year": 2026}' --stream
    """,
    epilog="""
        The result is printed as JSON, with bytes as base64; with --stream, each part on a line as
        it arrives.

        Ctrl-C cancels: a waiting call is never run, a running command is notified and may go on
        until its deadline; with --hard, its process is killed if the command does not end.
    """,
    exit_codes="""
        0 done, 1 the call failed, 2 wrong usage, 75 no child can take the call now (none answers,
        all are busy, too many calls wait, the command is refused for a while), 78 the configuration
        cannot be used, 130 Ctrl-C
    """,
)
@click.argument("command")
@click.option("--json", "text", metavar="JSON", help="The payload.  [default: null]")
@click.option("--file", "file", type=click.File("rb"), help="File with the payload; - reads stdin.")
@click.option("--session", metavar="ID", default="", help="Session of the call.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="For waiting and running.  [default: the command's, else call_timeout_s of its pool]",
)
@click.option(
    "--idempotent", is_flag=True, help="It may run twice: run it again if its process dies."
)
@click.option("--priority", type=click.IntRange(0, 9), default=0, help="Higher goes first.")
@click.option("--stream", is_flag=True, help="Print parts as they arrive.")
@click.option("--hard", is_flag=True, help="On Ctrl-C, kill its process if it does not end.")
@state_dir_option
@config_option
@click.option("--debug", is_flag=True, help="Show tracebacks, also those of the command.")
def call(
    command: str,
    text: str | None,
    file: IO[bytes] | None,
    stream: bool,
    hard: bool,
    state_dir: str | None,
    config: str | None,
    debug: bool,
    **options: Any,
) -> int:
    """Run COMMAND, an `@app.command` of the application, in a process of the pool."""
    payload = _payload(text, file)
    # Without the option, `idempotent` of @app.command applies.
    options["idempotent"] = options["idempotent"] or None
    loaded = with_state_dir(load_runtime(config), state_dir)
    path = pool_directory(loaded)
    default_s = call_timeout_s(loaded, command)
    timeout_s = options["timeout"] or default_s
    deadline = monotonic() + options["timeout"] if options["timeout"] else None
    try:
        # Wrong usage is reported before waiting for a worker.
        check_call(command, options["session"], timeout_s, None, options["priority"])
        wait_until_listening(loaded, timeout_s)
        # The children of any pool that know the command run it: the workers may run with another
        # configuration than this one.
        with SyncClient(path, timeout=default_s, hard_cancel=hard) as client:
            _run(client, command, payload, stream=stream, options=options)
    except CordataError as error:
        # A command raises in its child process: the frames of this process do not show where.
        code = report(error, debug=debug and not isinstance(error, CommandFailed))
        for line in _more(error, debug=debug):
            click.echo(line, err=True)
        return exit_codes.BUSY if _may_work_later(error) else code
    except ValueError as error:  # an invalid option; nothing was sent
        raise click.UsageError(str(error)) from None
    except KeyboardInterrupt:
        click.echo(_cancelled(command, deadline, hard=hard), err=True)
        return exit_codes.INTERRUPTED
    return 0


def _cancelled(command: str, deadline: float | None, *, hard: bool) -> str:
    """The message after Ctrl-C: what was cancelled, and how long the command may still run.

    `deadline`: monotonic seconds; None: the command's default, which only its child knows.
    """
    text = f"cancelled: if {printable(command)} has begun, it is notified"
    if hard:
        return f"{text}, and its process killed if it does not end soon (cancel_grace_s)"
    left = "until its deadline"
    if deadline is not None:
        left = f"for up to {max(1, round(deadline - monotonic()))} s, {left}"
    return f"{text} and may go on {left}; with --hard its process is killed"


def _more(error: CordataError, *, debug: bool) -> list[str]:
    """Further lines for an error: the type that a command raised, the last output of a child."""
    if isinstance(error, CommandFailed):
        if debug:
            return error.traceback.splitlines()
        return [f"hint: it raised {printable(error.type)}; --debug shows where"]
    if isinstance(error, ChildCrashed) and error.lines:
        return ["it wrote last:", *(f"  {printable(line)}" for line in error.lines)]
    if isinstance(error, CommandUnknown) and not error.hint:
        return ["hint: `cordata pool status` shows the names of all"]
    if isinstance(error, SessionNotFound):
        return ["hint: `cordata pool sessions` lists them; programs create them, and they expire"]
    return []


def _payload(text: str | None, file: IO[bytes] | None) -> object:
    """The payload given by --json or --file. Raises: click.UsageError."""
    if text is not None and file is not None:
        raise click.UsageError("either --json or --file, not both")
    if text is None and file is None:
        return None
    given: str | bytes = text if text is not None else file.read() if file is not None else b""
    try:
        return from_json(given, "payload")
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _run(
    client: SyncClient, command: str, payload: object, *, stream: bool, options: dict[str, Any]
) -> None:
    """Run the command and print its result, or with `stream` each part as it arrives."""
    parts = (
        client.stream(command, payload, **options)
        if stream
        else iter([client.execute(command, payload, **options)])
    )
    for part in parts:
        _show(part)


def _show(value: object) -> None:
    import msgspec

    try:
        line = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError):  # a key or a value that JSON cannot represent
        line = msgspec.json.encode(repr(value))
    click.echo(line)  # not print(): `run_command` recognizes a full disk by click's frames


def _may_work_later(error: CordataError) -> bool:
    if isinstance(error, DeadlineExceeded):
        return not error.ran
    # The command ran, and would most likely end in the same way.
    ran = isinstance(error, ChildCrashed | SessionQuotaExceeded)
    return isinstance(error, PoolTransient) and not ran
