"""redis-py is imported only when it is the broker: it costs 10 MB, and need not be installed."""

from __future__ import annotations

import os
import subprocess
import sys

_CODE = """
import sys
sys.modules["redis"] = sys.modules["hiredis"] = None  # an import raises ImportError
import cordata, cordata.cli, cordata.wiring.primary, cordata.wiring.worker
from cordata.broker import Queue
from cordata.broker.factory import check, is_store
from cordata.config.sections import BrokerConfig

check(BrokerConfig())
assert is_store(BrokerConfig())
Queue(None, owner="me", retries={})
print("fine")
"""


def test_store_is_the_broker_without_redis_py() -> None:
    words = [sys.executable, "-c", _CODE]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    assert found.stdout == "fine\n", found.stderr
