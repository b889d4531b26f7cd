"""What comes in: one module per kind of source, all below /api/webhook."""
