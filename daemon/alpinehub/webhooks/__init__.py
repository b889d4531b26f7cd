"""What comes in, all below /api/webhook.

    endpoint.py ......... the ASGI side: route, bounded body, answer, errors
    authentication.py ... which source it is from
    strict   generic.py ......... payload -> normalise -> intake; an error when it is not right
    lenient  lenient.py ......... wix, google, form: commits the body, and answers; form_limit.py
                                  limits public forms, thanks.py is the page a guest sees
             interpretation.py .. later, pure: submission (wix, google, form) -> fields (mapping,
                                  field_names) -> stay, days, values: a record, or problems

`alpinehub.inbox` joins the two halves of the lenient way.
"""
