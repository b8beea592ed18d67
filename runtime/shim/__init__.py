"""The node side of supervision: run one process, keep a truthful record of it, end all of it.

Standard library and Python 3.8 syntax only, for hosts differ. pdctl packs this package into one file, ships
it to a node under its own hash, and calls it as `python3 -I -S shim-<sha256>.py VERB [ROOT [DEPLOYMENT
[PROCESS_ID ...]]]` with one JSON object on stdin and one answer on stdout (JSON lines for `logs` and
`run`). `docs/shim.md` has the verbs.

A shim lives as long as its process, so modules that it needs import little: no argparse, typing,
dataclasses, logging.
"""
