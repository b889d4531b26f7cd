"""A client in another language: what the docstring of core/frame.py says is enough to write one."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.integration.pool.test_together import together

SCRIPT = Path(__file__).with_name("foreign.pl")
SAID = """\
welcome v=1 max=16777216
reply id=1 s=perl set={n=7}
result id=2 p={counters={},data={n=7},globals={}}
reply id=3 set={n=8} cnt={seen=2} wk=0
chunk id=4 p=0
chunk id=4 p=1
chunk id=4 p=2
end id=4
error id=5 code=failed m='NoneType' object cannot be interpreted as an integer
data type=TypeError permanent=false
error id=6 code=unknown_command
error id=7 code=cancelled
error id=8 code=protocol
error id=- code=frame_too_large data={length_bytes=20000000,limit_bytes=16777216}
pong id=9
end
"""


def test_client_in_another_language_calls_streams_and_keeps_a_session(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.worker():
        argv = ["perl", str(SCRIPT), str(all_.manager.path)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert (done.stderr, done.stdout) == ("", SAID)
