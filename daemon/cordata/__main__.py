"""Runs `python -m cordata`; `cordata server` starts its children by the path of this file."""

import sys

if not __package__:
    # Started by path, with -P: put the directory that holds the package on the path, not the
    # package itself, whose modules would hide others.
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parent.parent))

from cordata.cli import main

if __name__ == "__main__":
    main()
