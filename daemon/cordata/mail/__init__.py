"""Outgoing mail of reports, leads and alerts: the MIME message, and the SMTP conversation.

tx.send_mail -> row `mail` -> services.mail (primary) --+
alerts: services.alert on the primary ---> row `mail`   +-> message.mime_message -> smtp
        at once, without store: alert.alerter ----------+
"""
