"""Alerts: always the journal; counted by kind in the store, mailed with a cool-down and a limit."""

from cordata.alert.alerter import Alerter as Alerter
from cordata.alert.buffer import Buffer as Buffer
from cordata.alert.cooldown import RETRY_S as RETRY_S
from cordata.alert.cooldown import Cooldown as Cooldown
from cordata.alert.spool import Spool as Spool
from cordata.alert.watch import MAIL_PREFIX as MAIL_PREFIX
from cordata.alert.watch import AlertHandler as AlertHandler
