"""Programs of click commands, which are imported when they are called, and their exit codes.

Only this module turns an error into an exit code and a message.
"""

from __future__ import annotations

import io
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from inspect import cleandoc
from textwrap import indent
from typing import Any, NoReturn, TypeVar

import click

from cordata import events, exit_codes
from cordata.errors import ConfigError, CordataError
from cordata.log import HANDLER, fields, logger
from cordata.terminal.output import printable

F = TypeVar("F", bound=Callable[..., Any])

#: Packages that write to stdout for a command.
_WRITERS = {"click", "rich"}
_find_surrogate = re.compile("[\ud800-\udfff]").search
#: Characters of an error that are shown.
_MOST = 4000


def add_options(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """A decorator that adds several options and arguments, in the order of `--help`."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


class Command(click.Command):
    """A command whose help ends with examples, further text and exit codes."""

    def __init__(
        self, *args: Any, examples: str = "", epilog: str = "", exit_codes: str = "", **more: Any
    ) -> None:
        """`examples`: command lines. `exit_codes`: for example "0 done, 1 no such mail"."""
        lines = indent(cleandoc(examples), "  ")
        self.exit_codes = " ".join(exit_codes.split())
        parts = [
            f"Examples:\n\n\b\n{lines}" if examples else "",
            cleandoc(epilog),
            f"Exit codes: {self.exit_codes}." if exit_codes else "",
        ]
        more["epilog"] = "\n\n".join(filter(None, parts)) or None
        super().__init__(*args, **more)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Raises: click.UsageError, also for text that is not UTF-8: neither
        the stores nor JSON can carry it. A path may have any bytes.
        """
        left = super().parse_args(ctx, args)
        for parameter in self.get_params(ctx):
            value = ctx.params.get(parameter.name or "")
            if parameter.type is click.STRING and not _is_unicode(value):
                raise click.BadParameter("it is not UTF-8 text", ctx, parameter)
        return left


def _is_unicode(value: object) -> bool:
    """Whether neither a text nor one of a tuple has a stand-in for a byte that is not UTF-8."""
    if isinstance(value, tuple):
        return all(map(_is_unicode, value))
    return not isinstance(value, str) or not _find_surrogate(value)


class Group(Command, click.Group):
    """A group of such commands."""

    command_class = Command


class LazyGroup(Group):
    """Lists commands without importing them: `--help` and completion stay fast."""

    def __init__(
        self, *args: Any, lazy: Mapping[str, tuple[str, str]] | None = None, **kwargs: Any
    ) -> None:
        """`lazy`: name -> (`module:attribute`, line in the list of `--help`)."""
        super().__init__(*args, **kwargs)
        self._lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The lazy ones in their order, then the others."""
        return [*self._lazy, *(name for name in self.commands if name not in self._lazy)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of this name, imported now; None if there is none."""
        if name in self._lazy and name not in self.commands:
            module, _, attribute = self._lazy[name][0].partition(":")
            command: click.Command = getattr(import_module(module), attribute)
            self.add_command(command, name)
        return super().get_command(ctx, name)

    def summaries(self) -> dict[str, str]:
        """The line of each command in the list of `--help`."""
        lines = {name: line for name, (_, line) in self._lazy.items()}
        for name, command in self.commands.items():
            if not command.hidden:
                lines.setdefault(name, command.get_short_help_str(limit=80))
        return lines

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of `--help`."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries().items()))


def run_command(
    load: Callable[[], click.Command], name: str, argv: Sequence[str] | None = None
) -> NoReturn:
    """Run the command that `load` imports, as the program `name`. Never returns.

    Exit codes: 0 done or stopped in order, or what the command returns; 1 failed, 2 wrong usage, 78
    the configuration cannot be used (systemd does not restart after that one), 130 ended by Ctrl-C.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    try:
        result = load().main(args=arguments, prog_name=name, standalone_mode=False)
        code = result if isinstance(result, int) else 0
        _flush()
    except CordataError as error:
        code = report(error, debug=debug)
    except KeyboardInterrupt:
        code = exit_codes.INTERRUPTED
    except BrokenPipeError:
        # The reader of the output (head, less) closed the pipe.
        _drop_output()
        code = exit_codes.FAILED
    except OSError as error:
        code = _report_output(error) if _is_of_output(error) else _report_os(error, debug=debug)
    except Exception as error:  # noqa: BLE001 - the CLI boundary
        code = report_bug(error, debug=debug)
    sys.exit(code)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _is_of_output(error: OSError) -> bool:
    """Whether writing to stdout raised it: judged by the frame, since the error names no file."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    where: str = frame.f_globals.get("__name__", "")
    return error.filename is None and (where == __name__ or where.partition(".")[0] in _WRITERS)


def _drop_output() -> None:
    """Discard buffered output: writing it at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _report_output(error: OSError) -> int:
    _drop_output()
    print(f"error: cannot write the output: {error.strerror}", file=sys.stderr)
    print("hint: free some space, or write to another place", file=sys.stderr)
    return exit_codes.FAILED


def _report_os(error: OSError, *, debug: bool) -> int:
    """Report that the system refused something, such as a file with too long a name; of a role, or
    without a reason of the system, it is a bug.
    """
    if _has_log() or debug or error.strerror is None:
        return report_bug(error, debug=debug)
    place = f"{error.filename}: " if error.filename is not None else ""
    print(f"error: {_shown(place + error.strerror)}", file=sys.stderr)
    print("hint: --debug shows what the command tried", file=sys.stderr)
    return exit_codes.FAILED


def _usage(error: Exception) -> int | None:
    """Show an error of click and return its exit code; None for any other error."""
    if isinstance(error, click.ClickException):
        text = io.StringIO()
        error.show(text)
        print(_shown(text.getvalue().rstrip("\n")), file=sys.stderr)
        if near := _similar_command(error):
            print(f"hint: did you mean `{near}`?", file=sys.stderr)
        return error.exit_code
    if isinstance(error, click.Abort):  # Ctrl-C, or a question that was not answered with yes
        return (
            exit_codes.INTERRUPTED
            if isinstance(error.__cause__, KeyboardInterrupt)
            else exit_codes.FAILED
        )
    return None


def _similar_command(error: click.ClickException) -> str:
    """The command that was probably meant; "": none, or click has said it, as newer versions do."""
    import difflib

    ctx = error.ctx if isinstance(error, click.UsageError) else None
    unknown = re.match(r"No such command '(.*)'\.\Z", error.format_message())
    if ctx is None or unknown is None or not isinstance(ctx.command, click.Group):
        return ""
    near = difflib.get_close_matches(unknown[1], ctx.command.list_commands(ctx), n=1)
    return f"{ctx.command_path} {near[0]}" if near else ""


def report(error: CordataError, *, debug: bool = False) -> int:
    """Report an error, one line per problem, with its hint: in the log if it is set up, else on
    stderr. Returns the exit code.
    """
    if debug:
        traceback.print_exception(error)
    if _has_log():
        _log(error)
    else:
        for problem in _problems(error):
            print(f"error: {_shown(problem)}", file=sys.stderr)
        if error.hint:
            print(f"hint: {_shown(error.hint)}", file=sys.stderr)
    return exit_codes.CONFIG if isinstance(error, ConfigError) else exit_codes.FAILED


def _shown(text: str) -> str:
    """An error without control characters, and not too long: it may quote any argument."""
    kept = text if len(text) <= _MOST else f"{text[:_MOST]} ..."
    return "\n".join(map(printable, kept.split("\n")))


def report_bug(error: Exception, *, debug: bool) -> int:
    """Report an unexpected error: of a role in the log, with its traceback but without its message,
    which may quote personal data; of a command on stderr. Returns the exit code.
    """
    usage = _usage(error)
    if usage is not None:
        return usage
    if _has_log():
        extra = fields(events.SERVICE_FAILED)
        logger("cordata").critical(
            "this looks like a bug: %s", type(error).__name__, exc_info=error, extra=extra
        )
    elif debug:
        traceback.print_exception(error)
    else:
        print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
        print("hint: --debug shows the traceback; this looks like a bug", file=sys.stderr)
    return exit_codes.FAILED


def _has_log() -> bool:
    """Whether logging is set up, as in roles: their errors must be found in the journal."""
    return any(one.get_name() == HANDLER for one in logging.getLogger().handlers)


def _problems(error: CordataError) -> tuple[str, ...]:
    return error.problems if isinstance(error, ConfigError) and error.problems else (str(error),)


def _log(error: CordataError) -> None:
    config = isinstance(error, ConfigError)
    extra = fields(events.CONFIG_INVALID if config else "", code=error.code, hint=error.hint or "")
    hint = f" ({error.hint})" if error.hint else ""
    problems = _problems(error)
    for problem in problems:
        logger("cordata").error(
            "%s%s", problem, hint if problem == problems[-1] else "", extra=extra
        )
