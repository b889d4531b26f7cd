"""A child on loan: its client hands it short calls itself, without the manager in between.

```
            call             run                      1. the manager lends a child to a client that
  client <========> manager <=====> child                is alone: each gets an end of a socket
     ^                                ^                  and a page of memory
     '------- run, result, error -----'               2. calls go straight, and their answers back
          over the socket of the loan                 3. anybody else calls: the child is recalled
```
The manager's queue, its order and its turns are for those who share: so whoever is alone may do
without them, and nobody else ever waits for the calls of a loan. The child takes what the manager
sends before what its client sends; at the first call of another client all loans end, and what the
child had not begun goes to the manager like any call.

What the client gives to a child is what the manager would send ahead (sending.py): short calls
only, DEPTH of them and BUDGET_US of work at most. The page (page.py, of which the loan has its own)
says to both which call the child has begun: so the client takes back what lies behind a long one,
and knows after the child's end what ran. That no child is stuck with calls that another one could
run, that none runs twice, and that a dead child's are run again or reported holds as it does with
the manager. Deadlines are kept by the child's worker, which sees the call in hand on its own page.

Sessions. A session of which the child has a copy may be lent with it, for a small part of its time
to live, and counts as used at the end of that. Whatever changes it elsewhere is told to the child
before it is told to anybody: the child hears the manager out before it begins what its client sent.
What a call changes itself goes to the manager first, as ever, and the result with it: `passed`.
"""

from __future__ import annotations

#: Larger results go by the manager, which keeps what a client does not read: all that a client may
#: leave unread here fits into the socket, so that it never holds up the child.
LARGE = 8192
#: A child that has answered nothing for so long, or twice that, has the calls behind the one in
#: hand taken back by its client.
PATIENCE_S = 0.02
#: In the hello of who can borrow, or be lent: loans whose frames have this form.
FEATURE = "loan2"
#: Serials from here on are of calls that a client gave to a borrowed child.
LENT = 1 << 62
_ORDERS = 31
#: Orders of one loan, and loans of one manager.
MOST = (1 << _ORDERS) - 1
#: A client that is alone gets its loans after so many short calls ...
CALLS = 32
#: ... within such a time.
WITHIN_S = 1.0
#: A session is lent after so many calls that the manager had of it: to lend it takes the time that
#: about as many calls save, and many a session has no more.
SESSION_CALLS = 3
#: It is lent for so long at most, ...
_SESSION_S = 10.0
#: ... and for this part of the time that it lives without being used; ...
_SESSION_PART = 0.02
#: ... one that could be lent for less is not.
_SESSION_MIN_S = 0.05


def serial_of(loan: int, order: int) -> int:
    """The serial of the loan's call number `order`, from 1; both are MOST at most."""
    return LENT + (loan << _ORDERS) + order


def loan_of(serial: int) -> int:
    """The loan of such a serial."""
    return (serial - LENT) >> _ORDERS


def lent_s(ttl_s: float) -> float:
    """For how long a session that lives for `ttl_s` is lent; 0.0: not at all."""
    seconds = min(_SESSION_S, _SESSION_PART * ttl_s)
    return seconds if seconds >= _SESSION_MIN_S else 0.0
