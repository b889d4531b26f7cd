"""`python -m tests.oracle.record`: writes the recording, or the texts that it is made of."""

from __future__ import annotations

import argparse
import tempfile
from hashlib import sha256
from pathlib import Path

from tests.oracle.player import play
from tests.oracle.script import CHAPTERS

from cordata.wiring.event_loop import uvloop_runner

RECORDING = Path(__file__).parents[1] / "data" / "oracle"
_DIGEST_CHARS = 12


def digests(records: list[str]) -> list[str]:
    """A line for each record: its head and a digest of the whole."""
    return [
        f"{text.partition(chr(10))[0]}: {sha256(text.encode()).hexdigest()[:_DIGEST_CHARS]}"
        for text in records
    ]


def recorded(number: int) -> list[str]:
    """The recording of a chapter."""
    return _file(RECORDING, number).read_text().splitlines()


def _file(folder: Path, number: int) -> Path:
    return folder / f"{number:02}.txt"


def main() -> None:
    """Play the chapters on the embedded store, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, metavar="DIR", help="write texts, not the recording")
    parser.add_argument("chapter", type=int, nargs="*", help="these ones  [default: all]")
    chosen = parser.parse_args()
    folder: Path = chosen.text or RECORDING
    folder.mkdir(parents=True, exist_ok=True)
    for number in chosen.chapter or range(CHAPTERS):
        with tempfile.TemporaryDirectory() as state, uvloop_runner() as runner:
            records = runner.run(play(number, Path(state)))
        lines = records if chosen.text else digests(records)
        _file(folder, number).write_text("\n".join(lines) + "\n")
        print(f"chapter {number}: {len(records)} records", flush=True)


if __name__ == "__main__":
    main()
