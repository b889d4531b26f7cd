"""An application with a table for each thing that a copy has to get right."""

from cordata import App

app = App("family")
app.migrations("tests.integration.dbcopy.sql")
