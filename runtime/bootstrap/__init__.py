"""The KV bootstrap server, where prefill ranks announce themselves."""
