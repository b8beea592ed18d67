"""The user's document: loaded from YAML, checked against the schema, held in frozen dataclasses."""
