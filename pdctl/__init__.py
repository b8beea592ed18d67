"""Serve large language models with prefill/decode disaggregation from one YAML topology."""

__version__ = "0.1.0"
