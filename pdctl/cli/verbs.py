"""The verbs and what each does, in the order of the help text.

This table lets `pdctl --help` list them without importing them: each is a module in this folder that
has an `app`. A test holds the table and the verbs' own help texts together.
"""

from __future__ import annotations

HELP_OF_VERBS: dict[str, str] = {
    "validate": "Check topologies and report every fault in them.",
    "plan": "Show every process that `up` would run.",
    "render": "Write a topology's plan as scripts, to read or to run by hand.",
    "diff": "Show what `up` would change, and why.",
    "doctor": "Look whether the nodes can run a topology.",
    "up": "Make what runs equal to a topology, and prove that it serves.",
    "status": "Show what runs.",
    "logs": "Show the output of processes, merged.",
    "restart": "Restart instances.",
    "down": "Stop a deployment and leave nothing behind.",
    "history": "List who did what, also other operators.",
    "lock": "Show or break a deployment's lock.",
    "explain": "Explain a diagnostic code.",
    "list": "List what a topology can name.",
    "engine": "Read which flags an engine has.",
    "models": "List and fetch built-in models.",
    "nodes": "List, add and forget bad nodes of a Slurm cluster.",
    "schema": "Print the JSON Schema of a document.",
    "version": "Print the version.",
}
