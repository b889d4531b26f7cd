"""The webhooks below /api/webhook; one module for each kind of sender.

    endpoint.py ............ the HTTP side: route, bounded body, answer, errors
    authentication.py ...... which source a request is from
    generic.py ............. payload -> normalise -> intake; an error if it is not valid
    wix.py, google.py ...... the body is stored, answered, and interpreted later (receive.py)
    form.py ................ the same for public forms, with limits (form_limit.py) and a page for
                             the guest (thanks.py)
    interpretation.py ...... pure, runs later: submission -> fields (fields, field_names) -> stay,
                             days, values -> the data of a guest request, or problems

`alpinehub.inbox` runs the interpretation.
"""
