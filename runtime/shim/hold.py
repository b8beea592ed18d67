"""The verb `hold`: as `start`, but supervise in the foreground, as the task of a scheduler's step.

The step lives as long as the process. Its first line of output is the answer of `start`, its last one tells
how the process ended. TERM, to the step or to this process, stops it with its grace.
"""

from __future__ import annotations

import os

from . import jsontext
from .given import NotGiven, given_devices
from .in_flight import enter, leave
from .start import prepared
from .supervise import give_up, leave_caller, see_through

NOT_BEGUN = 125  # as `timeout`, `env` and `chroot` say that it is not the program's own code
FIRST_SIGNAL = 128


def hold(root: str, deployment: str, process_id: str, spec: dict) -> int:
    """The process's exit code; 128 and the signal's number where one ended it."""
    call = enter(root, deployment, is_new=True)  # until the program has begun, as for a start
    is_told = False

    def tell(answer: dict) -> None:
        nonlocal is_told
        if not is_told:
            is_told = True
            _print(answer)
            leave(call)

    run = prepared(root, deployment, process_id, spec)
    if isinstance(run, dict):
        tell(run)
        return NOT_BEGUN
    leave_caller(keep=(run.lock, run.exit_file) + (() if call is None else (call,)), silent=False)
    try:
        run.given = given_devices(spec.get("env", {}), os.environ)
    except NotGiven as error:
        give_up(run, tell, str(error))
        return NOT_BEGUN
    ending = see_through(run, tell)
    _print({name: ending.get(name) for name in ("code", "signal", "stopped", "reason")})
    return _exit_code(ending)


def _exit_code(ending: dict) -> int:
    if ending.get("signal"):
        return FIRST_SIGNAL + ending["signal"]
    return NOT_BEGUN if ending.get("code") is None else ending["code"]


def _print(answer: dict) -> None:
    try:
        os.write(1, (jsontext.dumps(answer) + "\n").encode())
    except OSError:  # whoever started the step is gone; the record has it all
        pass
