"""What hotel software tells of its hotel: read from a document that conforms to the schema, and
held against the rules that no schema can say. Pure: the same here and in a child of the pool.
"""
