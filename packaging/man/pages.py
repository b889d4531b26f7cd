"""Writes what the commands and the sample configuration say of themselves: man pages, completion.

`pages.py DIRECTORY` makes cordata.1, alpinehub.1, cordata.toml.5 and a bash completion for each
command there.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import BashComplete

HERE = Path(__file__).resolve().parent
#: The click command behind each program, as module:attribute.
COMMANDS = {"cordata": "cordata.cli.commands:cordata", "alpinehub": "alpinehub.cli:alpinehub"}
SAMPLE = HERE.parent / "cordata.toml"


def load(place: str) -> click.Command:
    """The click command at `module:attribute`."""
    module, attribute = place.split(":")
    command: click.Command = getattr(importlib.import_module(module), attribute)
    return command


def escape(text: str) -> str:
    """Text as roff: no backslash, hyphen or leading dot with a meaning of its own."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def tag(text: str) -> str:
    """The bold line that a description hangs on."""
    # A quote would group words for the macro, not be printed.
    return ".TP\n.B " + escape(text).replace('"', "\\(dq")


def paragraphs(text: str) -> Iterator[str]:
    """Click's help text: paragraphs are filled, those after a line `\\b` are kept as they are."""
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if block.startswith("\b"):
            kept = textwrap.dedent(block.removeprefix("\b").strip("\n"))
            yield ".PP\n.nf\n.RS 4\n" + escape(kept) + "\n.RE\n.fi"
        else:
            yield ".PP\n" + escape(" ".join(block.split()))


def first_then_rest(text: str) -> tuple[str, str]:
    """The first paragraph of a help text, and what follows it."""
    head, _, tail = inspect.cleandoc(text).partition("\n\n")
    return head, tail


def describe(command: click.Command, path: str, parent: click.Context | None) -> Iterator[str]:
    """Usage, help, options and subcommands of one command, as roff."""
    context = click.Context(command, info_name=path.split()[-1], parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f".SS {escape(path)} {escape(usage)}"
    yield from paragraphs(command.help or "")
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record and not ("--help" in record[0] and parent):
            yield tag(record[0]) + "\n" + escape(record[1])
    if command.epilog:
        yield from paragraphs(command.epilog)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child and not child.hidden:
                yield from describe(child, f"{path} {name}", context)


def command_page(name: str) -> str:
    """The whole man page of a command: `NAME.1.in` with the commands' own help in it."""
    frame = (HERE / f"{name}.1.in").read_text()
    return frame.replace("@COMMANDS@", "\n".join(describe(load(COMMANDS[name]), name, None)))


def sample_page() -> str:
    """cordata.toml(5): every key of the sample file, with the comment above it."""
    out: list[str] = []
    comment: list[str] = []
    for line in SAMPLE.read_text().splitlines():
        section = re.fullmatch(r"(?:# ?)?\[([\w.]+)\].*", line)
        key = re.fullmatch(r"#? ?([a-z_]+ = .*)", line)
        if section:
            out += [f".SS [{escape(section[1])}]", *_told(comment)]
            comment = []
        elif key:
            out += [tag(key[1]), *(_told(comment) or ["\\&"])]
            comment = []
        elif line.startswith("#"):
            comment.append(line.lstrip("# ").rstrip())
        else:  # the head of the file, of which the page has its own
            comment = []
    return (HERE / "cordata.toml.5.in").read_text().replace("@KEYS@", "\n".join(out))


def _told(comment: list[str]) -> list[str]:
    return [escape(line) for line in comment if line]


def completion(name: str) -> str:
    """Click's own script for bash, which asks the installed command at each completion."""
    script = BashComplete(load(COMMANDS[name]), {}, name, f"_{name.upper()}_COMPLETE")
    # Not script.source(): that wants to run the bash of the machine it is made on.
    return script.source_template % script.source_vars()


def main() -> None:
    """Write all into the directory named on the command line."""
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for name in COMMANDS:
        (target / f"{name}.1").write_text(command_page(name))
        (target / f"{name}.bash").write_text(completion(name))
    (target / "cordata.toml.5").write_text(sample_page())


if __name__ == "__main__":
    main()
