"""Engines, one file each: argv, environment, ports, probes and owned flags of one kind of server."""
