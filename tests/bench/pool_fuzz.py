"""The pool under any input, for a while: `pool_fuzz SECONDS`, for each of three parts.

The models of tests/unit/pool with new seeds, again and again; then atheris, which looks at the
branches that an input takes, on frames and on the file of sessions. Without atheris these two are
left out, with a word.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from msgspec import Raw, msgpack

#: Parts the bodies of records; no MessagePack begins with it.
_BETWEEN = b"\xc1\xc1"
CORPUS = Path(__file__).parents[1] / "data/pool"
MODELS = (
    ("test_dispatch_model", "AnyOrder"),
    ("test_session", "TableAgainstDict"),
    ("test_session", "GlobalsAgainstDict"),
    ("test_registry", "AnyLife"),
    ("test_queue", "FifoAgainstList"),
    ("test_queue", "FairTurns"),
    ("test_queue", "WaitingAgainstList"),
    ("test_deadline", "WheelAgainstList"),
)


def models(seconds: float) -> None:
    """Each model in turn until the time is over."""
    ends, rounds = time.monotonic() + seconds, 0
    wanted = settings(max_examples=100, stateful_step_count=60, deadline=None, database=None)
    while time.monotonic() < ends:
        for module, name in MODELS:
            found = getattr(importlib.import_module(f"tests.unit.pool.{module}"), name)
            machine: type[RuleBasedStateMachine] = found
            run_state_machine_as_test(machine, settings=wanted)
        rounds += 1
    print(f"models: {rounds} rounds of {100 * len(MODELS)} examples")


def frames(data: bytes) -> None:
    """Whatever a peer sends: messages, or ProtocolError. The first byte says how it is cut."""
    from cordata.core.frame import Splitter, TooLarge
    from cordata.core.pool import codec
    from cordata.errors import ProtocolError

    splitter, step = Splitter(1024), 1 + (data[0] if data else 0)
    try:
        for at in range(1, len(data), step):
            for frame in splitter.feed(data[at : at + step]):
                if not isinstance(frame, TooLarge):
                    for decoder in (codec.from_client, codec.from_child, codec.from_worker):
                        try:
                            message: Any = decoder.decode(frame)
                        except codec.UnfitMessage:
                            continue
                        codec.encode(message)
    except ProtocolError:
        pass
    assert splitter.pending_bytes <= 1028


def records(data: bytes) -> None:
    """Whatever a disk gives back: records that a table takes."""
    from cordata.core.pool import record
    from cordata.core.pool.session import SessionTable
    from cordata.core.pool.shelf import SessionLimits

    table = SessionTable(SessionLimits(), new_id=str, to_wall_us=lambda at: round(at * 1e6))
    whole = b"".join(_sealed(part) for part in data.split(_BETWEEN))
    for found in record.scan(whole):
        table.load(found.change, 1.0, 1_000_000)
    assert table.bytes == sum(session.bytes for session in table._sessions.values())


def seeds(target: str) -> list[bytes]:
    """Where atheris begins."""
    from cordata.core.pool import record

    if target == "frames":
        files = sorted(CORPUS.glob("*/*.bin"))
        return [b"\x07" + path.read_bytes() for path in files if path.stat().st_size < 5000]
    x = Raw(msgpack.encode({"a": [1, None]}))
    changes = (
        record.Put("a", 1, 10.0, 2_000_000, {"k": x}, {"n": 1}, "strict_queue", "3"),
        record.Changed("a", 2, 3_000_000, {"j": x}, ["k"], {"n": 2, "m": -1}, 5.0, "hint", ""),
        record.Touched({"a": 4_000_000, "b": 1}),
        record.Removed("a"),
        record.GlobalsChanged(3, {"g": x}, ["h"], True),
    )
    bodies = [record.encode(change)[8:] for change in changes]
    return [*bodies, _BETWEEN.join(bodies), _BETWEEN.join(bodies[:3])]


def _sealed(body: bytes) -> bytes:
    """With the right length and checksum: past them is where the fuzzer shall come."""
    from zlib import crc32

    return len(body).to_bytes(4, "big") + crc32(body).to_bytes(4, "big") + body


TARGETS: dict[str, Callable[[bytes], None]] = {"frames": frames, "records": records}


def under_atheris(target: str, seconds: int, corpus: str) -> None:
    """Never returns: libFuzzer ends the process."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["cordata"]):
        # What is to be watched must be imported here first.
        for module in ("cordata.core.pool.codec", "cordata.core.pool.session"):
            importlib.import_module(module)
    atheris.Setup(
        [sys.argv[0], f"-max_total_time={seconds}", "-verbosity=0", corpus], TARGETS[target]
    )
    atheris.Fuzz()


def main() -> int:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    if len(sys.argv) > 2:
        under_atheris(sys.argv[2], seconds, sys.argv[3])
    models(seconds)
    if importlib.util.find_spec("atheris") is None:
        print("atheris: left out, it cannot be installed for this Python")
        return 0
    for target in TARGETS:
        with tempfile.TemporaryDirectory() as corpus:
            for n, seed in enumerate(seeds(target)):
                (Path(corpus) / str(n)).write_bytes(seed)
            command = [sys.executable, "-m", "tests.bench.pool_fuzz", str(seconds), target, corpus]
            result = subprocess.run(command, env=os.environ, check=False)
        print(f"{target}: {'nothing found' if result.returncode == 0 else 'FAILED'}")
        if result.returncode:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
