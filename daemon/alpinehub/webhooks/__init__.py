"""What comes in, all below /api/webhook.

    strict   generic.py .......... payload -> normalise -> intake; refused when it is not right
    lenient  lenient.py .......... wix, google, form: receiving.py commits the body, and answers
             interpretation.py ... later, pure: sheet (wix, google, form) -> fields (mapping,
                                   words) -> reading (stay, days, headcount, values): a record,
                                   or problems

`alpinehub.inbox` joins the two halves of the lenient way.
"""
