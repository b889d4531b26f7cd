"""How a worker starts a child: by path, so that nothing else has to be imported before."""

import os
import sys

if not __package__:
    # With -P the directory of this file is not on the path, where its modules would hide others.
    up = os.path.dirname
    sys.path.insert(0, up(up(up(up(os.path.abspath(__file__))))))

from cordata.pool.child.starting import start

if __name__ == "__main__":
    sys.exit(start())
