r"""The inbox: submissions of all sources as they arrived; an operator settles those in review.

(stored) --> mapped (new, changed, duplicate)
   |     \-> rejected (a test)
   \--> review --mapping corrected, reprocess--> mapped
           |  ^
    reject v  | reprocess, as long as the text is kept
         rejected
"""
