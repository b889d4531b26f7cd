"""What a machine may lack for a while, as opposed to what somebody has to change."""

from __future__ import annotations

import errno

_LACKS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)


def passes(error: OSError) -> bool:
    """Whether the same may succeed later: space, a working disk, descriptors, memory."""
    return error.errno in _LACKS
