"""Outgoing mail: a MIME message, and one SMTP conversation. Reports, leads and alerts use both.

tx.send_mail -> row `mail` -> services.mail (primary) --+
alerts: services.alert on the primary ---> row `mail`   +-> message.mime_message -> smtp
        at once, without store: alert.alerter ----------+
"""
