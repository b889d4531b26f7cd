r"""The inbox: submissions of all sources as they arrived; an operator settles those in review.

(stored) --> mapped (new, changed, duplicate)
   |     \-> rejected (a test; by hand)
   \--> review --mapping corrected, reprocess--> mapped
"""
