"""Who may see the page: whoever knows the token, by a header or by a session.

A session is a cookie `END.RANDOM.MAC` whose key follows from the token: all workers know it,
nothing is stored, and a new token ends all sessions.
"""

from __future__ import annotations

import hmac
import math
import secrets

from cordata import clock

COOKIE = "cordata-status"
#: One working day.
SESSION_S = 43_200
#: Wrong tokens that one process takes at once, and the seconds after which it takes one more.
_BURST, _EVERY_S = 10, 6.0


class TooManyAttempts(Exception):
    """Tokens are not checked for now."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__()
        self.retry_after_s = math.ceil(retry_after_s)


class Access:
    """The token of this installation. Sessions go on while attempts are limited."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._key = hmac.digest(self._token, b"cordata status page", "sha256")
        #: Monotonic time at which the wrong tokens so far, at one in _EVERY_S, are used up.
        self._paid_at = 0.0

    def is_token(self, given: str) -> bool:
        """Compare in constant time. Raises: TooManyAttempts."""
        now = clock.monotonic()
        ahead_s = self._paid_at - now - (_BURST - 1) * _EVERY_S
        if ahead_s > 0:
            raise TooManyAttempts(ahead_s)
        if hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self._token):
            return True
        self._paid_at = max(now, self._paid_at) + _EVERY_S
        return False

    def new_session(self) -> str:
        """The value of a cookie."""
        end = round(clock.now().timestamp()) + SESSION_S
        session = f"{end}.{secrets.token_hex(16)}"
        return f"{session}.{self._mac(session)}"

    def is_session(self, cookie: str) -> bool:
        """Whether this is a cookie of `new_session` that has not ended."""
        session, _, mac = cookie.rpartition(".")
        given = mac.encode("utf-8", "surrogatepass")
        if not hmac.compare_digest(given, self._mac(session).encode()):
            return False
        return clock.now().timestamp() < int(session.partition(".")[0])

    def _mac(self, session: str) -> str:
        data = session.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, data, "sha256").hex()
