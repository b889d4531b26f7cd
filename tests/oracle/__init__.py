"""What the hub answered before its inside was rebuilt, and whether it still answers so.

`script` makes, from a seed, what guests, forms and hotel software send: forty chapters of 250
steps. `player` plays a chapter on the whole application (`cordata.testing.open_app`) by a clock
that only the chapter moves, and writes down each answer, and at the end what a person reads of it:
mails, and what the commands print. `test_oracle` compares the digests of all that with those in
tests/data/oracle, the same ones for both stores.

When an answer changes on purpose: write the texts with the old code and with the new one, compare
them, name each difference in the commit, and record again:

    python -m tests.oracle.record --text DIR     # in a checkout of each
    python -m tests.oracle.record                # all chapters, with today's code
"""
