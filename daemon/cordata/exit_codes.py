"""Exit codes of commands and roles; those above 63 are those of sysexits.h(3head).

systemd restarts no role that ends with CONFIG (RestartPreventExitStatus= in its unit).
"""

from __future__ import annotations

import signal

OK, FAILED = 0, 1
#: Click's own for a wrong command line is 2.
USAGE = 2
#: Nothing was restarted, because a pending migration removes something; the package's upgrade then
#: restarts all at once.
REMOVAL_PENDING = 3
#: A dependency is unavailable (EX_UNAVAILABLE): try again soon.
UNAVAILABLE = 69
#: Another process does it, or there is no room now (EX_TEMPFAIL): a later try may succeed.
BUSY = 75
#: The configuration, the application or the schema cannot be used (EX_CONFIG).
CONFIG = 78
#: Ended by Ctrl-C: 128 + SIGINT.
INTERRUPTED = 130


def describe(status: int) -> str:
    """`exited with 1`, or for a signal, which is a negative status, `was killed by SIGSEGV`."""
    if status >= 0:
        return f"exited with {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal, which has no name
        return f"was killed by signal {-status}"
