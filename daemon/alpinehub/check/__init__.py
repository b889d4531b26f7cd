"""Whether an AlpineBits server, any server, does what the protocol wants."""
