"""The client side of AlpineBits: what hotel software does with a server, any server."""
