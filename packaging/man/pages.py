"""Generates man pages, completions and reference pages from help texts, sample files and units.

`pages.py DIRECTORY` writes cordata.1 and alpinehub.1, a page for each of their commands
(cordata-mail.1), cordata.toml.5, alpinehub.toml.5, cordata-units.7, cordata-app.7 and a bash
completion for each program there. `pages.py --docs DIRECTORY` writes commands.md and
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

from cordata import __version__, terminal

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: The click command behind each program, as module:attribute.
COMMANDS = {"cordata": "cordata.cli:cordata", "alpinehub": "alpinehub.cli:alpinehub"}
#: The sample files: the runtime's, and the hub's drop-in.
SAMPLES = (HERE.parent / "cordata.toml", HERE.parent / "alpinehub.toml")
#: Pages that are written by hand, with values of the units and code of docs/ in them.
GUIDES = ("cordata-units.7", "cordata-app.7")


#: Spelling and description of an option.
Option = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Command:
    """One command, as its `--help` describes it."""

    #: With those it belongs to: `cordata pool status`.
    path: str
    usage: str
    #: Click's help text; after a line `\b` a paragraph keeps its line breaks.
    text: str
    options: list[Option]
    #: What `--help` shows last: examples, further text, exit codes; written as `text` is.
    epilog: str
    exit_codes: str
    #: Whether it does nothing but hold other commands.
    is_group: bool


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
    text, epilog = inspect.cleandoc(command.help or ""), command.epilog or ""
    is_group = isinstance(command, click.Group)
    exit_codes = command.exit_codes if isinstance(command, terminal.Command) else ""
    yield Command(path, usage, text, options, epilog, exit_codes, is_group)
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


#: A paragraph of a help text, and whether it keeps its line breaks.
Paragraph = tuple[str, bool]


def paragraphs(text: str) -> Iterator[Paragraph]:
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
    # A quote would group words for the macro, not be printed. A list of choices may be divided.
    return ".TP\n.B " + escape(text).replace('"', "\\(dq").replace("|", "|\\:")


def _roff(paragraph: Paragraph) -> str:
    text, kept = paragraph
    return f".PP\n.nf\n.RS 4\n{escape(text)}\n.RE\n.fi" if kept else f".PP\n{escape(text)}"


def program_page(name: str) -> str:
    """The man page of a program: `NAME.1.in` with the list of its commands in it."""
    top, *_ = commands(name)
    listed = [
        f".TP\n.BR {escape(f'{name}-{command}')} (1)\n{escape(line)}"
        for command, line in summaries(name).items()
    ]
    text = (HERE / f"{name}.1.in").read_text()
    text = text.replace("@OPTIONS@", "\n".join(_options(top.options)))
    return _finished(text.replace("@COMMANDS@", "\n".join(listed)))


def summaries(name: str) -> dict[str, str]:
    """The list of `--help`: each command of a program in a line."""
    program = load(COMMANDS[name])
    assert isinstance(program, terminal.LazyGroup)
    return program.summaries()


def command_pages(name: str) -> Iterator[tuple[str, str]]:
    """Name and text of the man page of each command of a program, its subcommands included."""
    found: dict[str, list[Command]] = {}
    for command in commands(name):
        found.setdefault("-".join(command.path.split()[:2]), []).append(command)
    for command_name, line in summaries(name).items():
        page = f"{name}-{command_name}"
        yield page, command_page(page, line, found[page])


def command_page(page: str, summary: str, described: list[Command]) -> str:
    """The man page of one command: NAME, SYNOPSIS and so on, from what `--help` says."""
    top, *inner = described
    description, examples = _parts(top)
    summary = summary[0].lower() + summary[1:].rstrip(".")
    called = [one for one in inner if not one.is_group] or [top]
    common = [one for one in called[0].options if all(one in other.options for other in called)]
    out = [f'.TH {page.upper()} 1 "" "cordata {__version__}" "User Commands"']
    out += [".SH NAME", f"{escape(page)} \\- {escape(summary)}", ".SH SYNOPSIS"]
    out.append("\n.br\n".join(f".B {escape(one.path)}\n{escape(one.usage)}" for one in called))
    out += [".SH DESCRIPTION", *map(_roff, description)]
    if inner:
        out += [".SH COMMANDS", *_commands_roff(inner, common)]
    if common:
        out += [".SH OPTIONS", *(["Of each of these commands:"] if inner else [])]
        out += _options(common)
    if examples:
        out += [".SH EXAMPLES", *map(_roff, examples)]
    program = page.partition("-")[0]
    out += [".SH EXIT STATUS", *(_exit_status(top.exit_codes) or [f"See\n.BR {program} (1)."])]
    said = "\n".join(text for one in described for text in (one.text, one.epilog))
    out += [".SH SEE ALSO", ",\n".join(_see_also(page, said))]
    return _finished("\n".join(out) + "\n")


def _commands_roff(described: Iterable[Command], common: list[Option]) -> Iterator[str]:
    for command in described:
        yield f".SS {escape(command.path)} {escape(command.usage)}".replace("|", "|\\:")
        yield from map(_roff, paragraphs(command.text))
        yield from _options(one for one in command.options if one not in common)
        yield from map(_roff, paragraphs(command.epilog))


def _options(options: Iterable[Option]) -> list[str]:
    return [f"{tag(option)}\n{escape(text)}" for option, text in options]


def _parts(command: Command) -> tuple[list[Paragraph], list[Paragraph]]:
    """The help of a command as description and examples, without its exit codes."""
    description = list(paragraphs(command.text))
    examples: list[Paragraph] = []
    for text, kept in paragraphs(command.epilog):
        if kept:
            examples.append((text, True))
        elif text != "Examples:" and not text.startswith("Exit codes: "):
            description.append((text, False))
    return description, examples


def _exit_status(text: str) -> list[str]:
    """A list of `0 done, 1 failed, ...`; what follows its full stop is a paragraph."""
    if not text:
        return []
    codes, _, rest = text.partition(". ")
    _, *entries = re.split(r"(?:^|[,;] )(\d+) ", codes.rstrip("."))
    out = [f"{tag(code)}\n{escape(line)}." for code, line in zip(*[iter(entries)] * 2, strict=True)]
    return [*out, f".PP\n{escape(rest)}"] if rest else out


def _see_also(page: str, text: str) -> Iterator[str]:
    """The program, the pages of commands that a text names, and of units and settings."""
    program = page.partition("-")[0]
    yield f".BR {program} (1)"
    for other in COMMANDS:
        for name in summaries(other):
            if f"{other}-{name}" != page and re.search(rf"\b{other} {name}\b", text):
                yield f".BR {escape(f'{other}-{name}')} (1)"
    yield f".BR {program}.toml (5)"
    if re.search(r"systemctl|systemd|@\d|\w@|\.(service|target|timer)\b", text):
        yield ".BR cordata\\-units (7)"


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
    text = (HERE / f"{sample.name}.5.in").read_text()
    return _finished(text.replace("@KEYS@", "\n".join(out)))


def guide_page(name: str) -> str:
    """cordata-units(7), for example: `NAME.in` with values of the units and code of docs/."""
    text = (HERE / f"{name}.in").read_text()
    text = text.replace("@SERVICES@", "\n".join(_service_rows()))
    text = re.sub(r"^@CODE (\S+) (\S+)@$", lambda found: _code(*found.groups()), text, flags=re.M)
    return _finished(re.sub(r"\{([\w@.-]+):(\w+)\}", lambda found: setting(*found.groups()), text))


def setting(unit: str, key: str) -> str:
    """The value of a key in a unit file; durations with their unit."""
    found = re.findall(rf"^{key}=(.*)$", (ROOT / "units" / unit).read_text(), re.MULTILINE)
    if len(found) != 1:
        raise SystemExit(f"units/{unit} has {len(found)} lines {key}=")
    value: str = re.sub(r"^(\d+)(ms|min|h)$", r"\1 \2", found[0])
    return f"{value} s" if key.endswith("Sec") and value.isdigit() else value


#: Columns of the table in cordata-units(7).
_SERVICE_KEYS = (
    *("Restart", "RestartSec", "RestartPreventExitStatus"),
    *("TimeoutStartSec", "TimeoutStopSec", "WatchdogSec"),
)


def _service_rows() -> Iterator[str]:
    """Rows of a table (tbl): what systemd does with each service."""
    for path in sorted((ROOT / "units").glob("*.service")):
        text = path.read_text()
        cells = [setting(path.name, key) if f"\n{key}=" in text else "" for key in _SERVICE_KEYS]
        yield escape("\t".join((path.stem, *(cell or "\u2013" for cell in cells))))


def _code(page: str, name: str) -> str:
    """A file that a page of docs/ shows, whose first line is its name."""
    text = (ROOT / "docs" / page).read_text()
    [block] = re.findall(rf"^```\w+\n((?:#|--) {name}\n.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return _roff((block.rstrip(), True))


def _finished(page: str) -> str:
    """With the version, and as systemd's own pages: no words are divided, no lines stretched."""
    page = page.replace("@VERSION@", __version__)
    return re.sub(r"^\.TH .*$", "\\g<0>\n.nh\n.ad l\n.ss 12 0", page, count=1, flags=re.MULTILINE)


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
        "config show` prints the settings as the files say.",
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


def _markdown(paragraph: Paragraph) -> str:
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
        (target / f"{name}.1").write_text(program_page(name))
        for page, text in command_pages(name):
            (target / f"{page}.1").write_text(text)
        (target / f"{name}.bash").write_text(completion(name))
    for sample in SAMPLES:
        (target / f"{sample.name}.5").write_text(sample_page(sample))
    for guide in GUIDES:
        (target / guide).write_text(guide_page(guide))


if __name__ == "__main__":
    main()
