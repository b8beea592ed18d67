"""The control channel between prefill and decode: its messages, its links, the rooms they speak about."""
