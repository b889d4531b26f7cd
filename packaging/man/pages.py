"""Generates man pages, completions and reference pages from help texts and sample files.

`pages.py DIRECTORY` writes cordata.1, alpinehub.1, cordata.toml.5, alpinehub.toml.5 and a bash
completion for each command there. `pages.py --docs DIRECTORY` writes commands.md and
configuration.md.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
from click.shell_completion import BashComplete

HERE = Path(__file__).resolve().parent
#: The click command behind each program, as module:attribute.
COMMANDS = {"cordata": "cordata.cli:cordata", "alpinehub": "alpinehub.cli:alpinehub"}
#: The sample files: the runtime's, and the hub's drop-in.
SAMPLES = (HERE.parent / "cordata.toml", HERE.parent / "alpinehub.toml")


@dataclass(frozen=True, slots=True)
class Command:
    """One command, as its `--help` describes it."""

    #: With those it belongs to: `cordata pool status`.
    path: str
    usage: str
    #: Click's help text; after a line `\b` a paragraph keeps its line breaks.
    text: str
    #: Spelling and description of each option.
    options: list[tuple[str, str]]
    #: What `--help` shows last, mostly examples; written as `text` is.
    epilog: str


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the sample configuration."""

    name: str
    #: As TOML writes it.
    value: str
    #: False: the sample sets it, as it has none.
    is_default: bool
    text: list[str]


@dataclass(frozen=True, slots=True)
class Section:
    """One section of the sample configuration."""

    name: str
    text: list[str]
    keys: list[Key] = field(default_factory=list)


def load(place: str) -> click.Command:
    """The click command at `module:attribute`."""
    module, attribute = place.split(":")
    command: click.Command = getattr(importlib.import_module(module), attribute)
    return command


def commands(name: str) -> Iterator[Command]:
    """A program and all its commands, in the order of `--help`."""
    return _commands(load(COMMANDS[name]), name, None)


def _commands(command: click.Command, path: str, parent: click.Context | None) -> Iterator[Command]:
    context = click.Context(command, info_name=path.split()[-1], parent=parent)
    # Options alone: newer versions of click describe arguments, too, which stand in the usage.
    given = [one for one in command.get_params(context) if isinstance(one, click.Option)]
    records = [one.get_help_record(context) for one in given]
    options = [one for one in records if one and not ("--help" in one[0] and parent)]
    usage = " ".join(command.collect_usage_pieces(context))
    text, epilog = inspect.cleandoc(command.help or ""), inspect.cleandoc(command.epilog or "")
    yield Command(path, usage, text, options, epilog)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child and not child.hidden:
                yield from _commands(child, f"{path} {name}", context)


def sections(sample: Path) -> list[Section]:
    """Every section and key of a sample file, each with the comment above it."""
    found: list[Section] = []
    comment: list[str] = []
    for line in sample.read_text().splitlines():
        section = re.fullmatch(r"(?:# ?)?\[([\w.]+)\].*", line)
        key = re.fullmatch(r"(#?) ?([a-z_]+) = (.*)", line)
        if section:
            found.append(Section(section[1], comment))
            comment = []
        elif key:
            found[-1].keys.append(Key(key[2], key[3], key[1] == "#", comment))
            comment = []
        elif text := line.lstrip("# ").rstrip():
            comment.append(text)
        elif not line:  # the head of the file, of which each page has its own
            comment = []
    return found


def paragraphs(text: str) -> Iterator[tuple[str, bool]]:
    """Click's help text by paragraphs, and whether one keeps its line breaks."""
    for block in filter(None, re.split(r"\n\s*\n", text.strip("\n"))):
        if block.startswith("\b"):
            yield textwrap.dedent(block.removeprefix("\b").strip("\n")), True
        else:
            yield " ".join(block.split()), False


def escape(text: str) -> str:
    """Text as roff: no backslash, hyphen or leading dot with a meaning of its own."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def tag(text: str) -> str:
    """The bold line that a description hangs on."""
    # A quote would group words for the macro, not be printed.
    return ".TP\n.B " + escape(text).replace('"', "\\(dq")


def command_page(name: str) -> str:
    """The whole man page of a command: `NAME.1.in` with the commands' own help in it."""
    out: list[str] = []
    for command in commands(name):
        out.append(f".SS {escape(command.path)} {escape(command.usage)}")
        out += map(_roff, paragraphs(command.text))
        out += [f"{tag(option)}\n{escape(text)}" for option, text in command.options]
        out += map(_roff, paragraphs(command.epilog))
    return (HERE / f"{name}.1.in").read_text().replace("@COMMANDS@", "\n".join(out))


def _roff(paragraph: tuple[str, bool]) -> str:
    text, kept = paragraph
    return f".PP\n.nf\n.RS 4\n{escape(text)}\n.RE\n.fi" if kept else f".PP\n{escape(text)}"


def sample_page(sample: Path) -> str:
    """cordata.toml(5), for example: every key of the sample file, with the comment above it."""
    out: list[str] = []
    for section in sections(sample):
        out += [f".SS [{escape(section.name)}]", *map(escape, section.text)]
        for key in section.keys:
            out += [
                tag(f"{key.name} = {key.value}"),
                *(map(escape, key.text) if key.text else ["\\&"]),
            ]
    return (HERE / f"{sample.name}.5.in").read_text().replace("@KEYS@", "\n".join(out))


def command_reference() -> str:
    """docs/reference/commands.md: what `--help` says of every command."""
    out = ["# Commands", _WRITTEN + "`--help` says the same; so do cordata(1) and alpinehub(1)."]
    for name in COMMANDS:
        out.append(f"## {name}")
        for command in commands(name):
            out.append(f"### {command.path}")
            out.append(f"    {command.path} {command.usage}")
            out += map(_markdown, paragraphs(command.text))
            if command.options:
                rows = [(f"`{option}`", _plain(text)) for option, text in command.options]
                out.append(_table(("option", "meaning"), rows))
            out += map(_markdown, paragraphs(command.epilog))
    return "\n\n".join(out) + "\n"


def configuration_reference() -> str:
    """docs/reference/configuration.md: every key of the sample files, with its default."""
    out = [
        "# Configuration",
        _WRITTEN
        + "The file is `/etc/cordata/cordata.toml`, or what `--config` or `$CORDATA_CONFIG`\n"
        "names, or `./cordata.toml`; cordata.toml(5) says the same. Files in `conf.d` beside it\n"
        "(`conf.d/alpinehub.toml` for the hub) have keys that the file itself does not set. Times\n"
        "are in seconds, sizes in bytes. `cordata config check` reports every mistake, `cordata\n"
        "config show` prints the settings in effect.",
    ]
    hub = [one for one in sections(SAMPLES[1]) if one.name != "app"]
    for section in [*sections(SAMPLES[0]), *hub]:
        out.append(f"## [{section.name}]")
        if section.text:
            out.append(_plain(" ".join(section.text)))
        if section.keys:
            rows = [
                (
                    f"`{key.name}`",
                    f"`{key.value}`" if key.is_default else "",
                    _plain(" ".join(key.text)),
                )
                for key in section.keys
            ]
            out.append(_table(("key", "default", "meaning"), rows))
    return "\n\n".join(out) + "\n"


_WRITTEN = "<!-- Written by `make reference`; do not edit. -->\n\n"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _markdown(paragraph: tuple[str, bool]) -> str:
    text, kept = paragraph
    return textwrap.indent(text, "    ") if kept else _plain(text)


def _plain(text: str) -> str:
    """Text in which no character outside of backquotes is markup."""
    parts = text.split("`")
    return "`".join(
        re.sub(r"([<>*_])", r"\\\1", part) if n % 2 == 0 else part for n, part in enumerate(parts)
    )


def completion(name: str) -> str:
    """Click's own script for bash, which asks the installed command at each completion."""
    script = BashComplete(load(COMMANDS[name]), {}, name, f"_{name.upper()}_COMPLETE")
    # Not script.source(): that wants to run the bash of the machine it is made on.
    return script.source_template % script.source_vars()


def main() -> None:
    """Write all into the directory named on the command line; with --docs, the reference."""
    if sys.argv[1] == "--docs":
        target = Path(sys.argv[2])
        (target / "commands.md").write_text(command_reference())
        (target / "configuration.md").write_text(configuration_reference())
        return
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for name in COMMANDS:
        (target / f"{name}.1").write_text(command_page(name))
        (target / f"{name}.bash").write_text(completion(name))
    for sample in SAMPLES:
        (target / f"{sample.name}.5").write_text(sample_page(sample))


if __name__ == "__main__":
    main()
