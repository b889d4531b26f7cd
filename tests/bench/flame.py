"""A flame graph of the workers under durable webhooks: which code their Python time goes to.

python -m tests.bench.flame OUT.svg [--store sqlite|postgres] [--checkout DIR] [--seconds 10]

Needs py-spy (pip install py-spy), which does not know a Python that another program has loaded: so
run it with an interpreter of the machine, not with that of a tree. Only samples that hold the
interpreter count. Width is time; below each function are those that it called. What takes under
half a per cent is left out.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from tests.bench.servers import POSTGRES, ROOT, hub
from tests.bench.webhook import fresh, wrk
from tests.servers.postgres import PostgresServer
from tests.servers.reaper import watched

_WIDTH, _ROW, _CHARACTER = 1200, 17, 6.6
_SMALLEST = 0.005
#: What a frame belongs to, by the beginning of its file, and its colour.
_PARTS = (
    ("cordata/http/", "HTTP", "#f3b562"),
    ("cordata/store/", "store", "#7fb8d6"),
    ("alpinehub/", "hub", "#a3cf8f"),
    ("cordata/", "rest of cordata", "#d3b3dd"),
    ("", "libraries", "#d9d9d9"),
)
_BASE = ("asyncio/runners.py", "uvloop/__init__.py", "asyncio/base_events.py")


@dataclass(slots=True)
class Node:
    """A function, called by the ones above it."""

    samples: int = 0
    called: dict[str, Node] = field(default_factory=dict)


def frames_of(stack: str) -> list[str]:
    """The functions of a stack of py-spy from the event loop on, without numbers of lines."""
    frames = [re.sub(r":\d+\)$", ")", one) for one in stack.split(";")]
    loops = [n for n, one in enumerate(frames) if any(base in one for base in _BASE)]
    if not loops:
        return ["other threads"]
    return frames[loops[-1] + 1 :] or ["event loop (uvloop)"]


def tree_of(lines: Iterable[str]) -> Node:
    """All stacks of all processes as one tree; a line is `frame;frame;... count`."""
    root = Node()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        node = root
        node.samples += int(count)
        for frame in frames_of(stack):
            node = node.called.setdefault(frame, Node())
            node.samples += int(count)
    return root


def boxes(
    node: Node, whole: int, left: float, depth: int
) -> Iterator[tuple[float, int, str, Node]]:
    """Left end in samples, depth, name and node of what is drawn, depth first."""
    for name, one in sorted(node.called.items()):
        if one.samples >= whole * _SMALLEST:
            yield left, depth, name, one
            yield from boxes(one, whole, left, depth + 1)
        left += one.samples


def svg(root: Node, title: str) -> str:
    """The picture."""
    drawn = list(boxes(root, root.samples, 0, 0))
    deepest = max(depth for _, depth, _, _ in drawn) + 1
    height = (deepest + 3) * _ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
        f' font-family="monospace" font-size="11" role="img" aria-label="{escape(title)}">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="4" y="13" font-size="13">{escape(title)}</text>',
    ]
    x = 4.0
    for _, what, colour in _PARTS:
        parts.append(f'<rect x="{x}" y="20" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14}" y="29">{what}</text>')
        x += 30 + len(what) * _CHARACTER
    for left, depth, name, node in drawn:
        share = node.samples / root.samples
        at, width = left / root.samples * _WIDTH, share * _WIDTH
        function, _, file = name.removesuffix(")").partition(" (")
        colour = next(colour for start, _, colour in _PARTS if file.startswith(start))
        y = (depth + 2) * _ROW + 2
        shown = function[: max(int((width - 4) / _CHARACTER), 0)]
        parts.append(
            f'<g><title>{escape(name)}: {share:.1%}</title><rect x="{at:.1f}" y="{y}"'
            f' width="{max(width - 0.5, 0.5):.1f}" height="{_ROW - 1}" fill="{colour}"/>'
            f'<text x="{at + 2:.1f}" y="{y + 12}">{escape(shown)}</text></g>'
        )
    return "\n".join([*parts, "</svg>", ""])


def record(store: str, checkout: Path, seconds: int) -> list[str]:
    """The stacks of all workers while wrk sends requests, as py-spy writes them."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server = None
        if store == "postgres":
            server = stack.enter_context(PostgresServer(durable=True, settings=POSTGRES))
        url = stack.enter_context(fresh(server))
        running = stack.enter_context(hub(scratch, url, checkout=checkout))
        wrk(running, seconds=2, run="warm")
        raw = scratch / "stacks"
        argv = ["py-spy", "record", "--subprocesses", "--gil", "-r", "250", "-d", str(seconds)]
        argv += ["-f", "raw", "-o", str(raw), "-p", str(running.pid)]
        null = subprocess.DEVNULL
        with watched(subprocess.Popen(argv, stdout=null, stderr=null)) as spy:
            wrk(running, seconds=seconds + 1, run="run")
        assert spy.returncode == 0, "py-spy failed"
        return raw.read_text().splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="postgres")
    parser.add_argument("--checkout", type=Path, default=ROOT)
    parser.add_argument("--title", default="")
    parser.add_argument("--seconds", type=int, default=10)
    options = parser.parse_args()
    root = tree_of(record(options.store, options.checkout.resolve(), options.seconds))
    title = options.title or f"Python time of the workers, webhooks on {options.store}"
    options.out.write_text(svg(root, title))
    print(f"{options.out}: {root.samples} samples")


if __name__ == "__main__":
    main()
