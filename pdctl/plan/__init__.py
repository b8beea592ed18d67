"""The launch plan: everything that should run, as values."""
