"""Inbound messages: read from a document that conforms to the schema, and checked against the rules
that a schema cannot express. Pure: the same in a worker and in a child of the pool.
"""
