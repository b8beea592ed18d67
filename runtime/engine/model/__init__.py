"""The transformer of the reference engine: config, weights, forward pass."""
