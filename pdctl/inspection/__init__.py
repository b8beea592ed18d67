"""Read the flags of an installed SGLang, or of a wheel, from its source: nothing of it is imported or run.

What the source can't tell: choices that compiled code or plug-ins add, defaults and choices that depend on
the environment (`SGLANG_KV_CANARY_ENABLE_TOKEN_ORACLE` adds a sampling backend), what a parser of the
program's own makes of a word (`opaque`), and everything that the program checks after it has parsed its
command line.
"""
