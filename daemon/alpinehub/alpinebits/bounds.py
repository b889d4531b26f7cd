"""How large what hotel software sends may be."""

from __future__ import annotations

from typing import Final

#: Body as received, and as unpacked: all rate plans of a large hotel are 3 to 6 MB.
MAX_BODY_BYTES: Final = 8 * 1024 * 1024
#: What has more is rare: 1 MiB acknowledges 10,000 guest requests.
LARGE_BYTES: Final = 2 * 1024 * 1024
