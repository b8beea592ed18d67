"""A small torch prefill/decode engine that speaks the PD interface of SGLang."""
