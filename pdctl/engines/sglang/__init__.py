"""SGLang, `python -m sglang.launch_server`, as prefill and decode.

`program.py` is the plug-in: argv and environment of one process. What it needs stands beside it: which
release spells what (`release.py`), which ports come together (`ports.py`), which devices (`devices.py`), what
of `transfer` becomes a flag or a variable (`transfer.py`), and what SGLang refuses or ignores (`rules.py`).

Facts carry the file of SGLang 0.5.23 that they were read in, relative to `sglang/srt/`; boundaries between
releases were read in the wheels 0.5.9, 0.5.10.post1, 0.5.12.post1 to 0.5.17 and 0.5.20 to 0.5.23.
"""

from pdctl.engines.sglang.program import PROGRAM

__all__ = ["PROGRAM"]
