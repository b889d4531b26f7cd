"""Alerts: always the journal; a mail at most once per cause and cool-down, counting the rest."""

from cordata.alert.alerter import Alerter as Alerter
from cordata.alert.cooldown import Cooldown as Cooldown
from cordata.alert.watch import AlertHandler as AlertHandler
