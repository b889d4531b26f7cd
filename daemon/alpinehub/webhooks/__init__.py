"""The webhooks below /api/webhook; one module for each kind of sender.

    endpoint.py ............ the HTTP side: route, bounded body, answer, errors
    authentication.py ...... which source a request is from
    generic.py ............. payload -> normalise -> intake; an error if it is not valid
    receive.py ............. Wix and Google Ads: interpretation -> intake, or the review list
    form_endpoint.py ....... the same for public forms, with limits (form_limit.py) and a page for
                             the guest (thanks.py)
    interpretation.py ...... pure: body -> fields (wix, google, form; fields, field_names) -> stay,
                             days, values -> the data of a guest request, or problems
    form_shapes.py ......... tells the operator that a form was changed

`alpinehub.inbox` interprets submissions again for an operator.
"""
