"""An AlpineBits client: requests, as hotel software sends them, to any AlpineBits server.

Used by the push of guest requests, by `alpinehub pms` and by `alpinehub check`.
"""
