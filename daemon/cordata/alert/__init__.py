"""Alerts: each error is logged to the journal, counted by kind in the store, and mailed by kind.

error in the log -> AlertHandler -> Buffer -> services.alert -> store -> one mail for all kinds
    | urgent, or the store is away                  ^                     that are due (primary)
    v                                               | primary
Alerter -> Cooldown (one per host) -> SMTP        Spool (file of the host)
    ^                                               ^ a process ends, or has no store
    +------------------ cordata alert UNIT ---------+
"""

from cordata.alert.alerter import Alerter as Alerter
from cordata.alert.alerter import pace_of as pace_of
from cordata.alert.alerter import recipients_of as recipients_of
from cordata.alert.cooldown import RETRY_S as RETRY_S
from cordata.alert.cooldown import Cooldown as Cooldown
from cordata.alert.handler import MAIL_PREFIX as MAIL_PREFIX
from cordata.alert.handler import AlertHandler as AlertHandler
from cordata.alert.handler import Buffer as Buffer
from cordata.alert.spool import Spool as Spool
