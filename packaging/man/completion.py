"""Prints the bash completion of a command: `completion.py cordata`."""

from __future__ import annotations

import sys

from click.shell_completion import BashComplete
from pages import COMMANDS, load


def main() -> None:
    """Click's own script; it asks the installed command for each completion."""
    name = sys.argv[1]
    variable = f"_{name.upper()}_COMPLETE"
    script = BashComplete(load(COMMANDS[name]), {}, name, variable)
    # Not .source(): that wants to run the bash of the machine it is made on.
    print(script.source_template % script.source_vars())


if __name__ == "__main__":
    main()
