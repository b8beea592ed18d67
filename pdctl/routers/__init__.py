"""Routers, one file each: what stands in front of the prefill and decode instances."""
