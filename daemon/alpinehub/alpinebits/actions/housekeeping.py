"""getVersion, getCapabilities: what 2017-10 has instead of a handshake. Neither has a document."""

from __future__ import annotations

from alpinehub.alpinebits.call import Answer, Call, Plain
from alpinehub.alpinebits.capability import announce


async def tell_version(call: Call) -> Answer:
    """The version that the client speaks: it is asked for in the only way it can be."""
    return Plain(f"OK:{call.protocol.name}")


async def tell_capabilities(call: Call) -> Answer:
    """Actions and what they support, in one list."""
    announced = announce(call.account, call.protocol)
    names = [name for action, supports in announced.items() for name in (action, *sorted(supports))]
    return Plain(f"OK:{','.join(names)}")
