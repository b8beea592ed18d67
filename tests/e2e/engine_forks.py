"""Engines without the price of their imports: `python engine_forks.py`, which imports once and then forks.

A line of JSON each way. In: `{"argv": [...], "log": PATH}`. Out: `{"started": PID}` for each, in order, and
`{"ended": PID, "exit_code": N}` when one has ended, negative after a signal. Ends, with all of them, at the
end of its input.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import sys
import traceback
from typing import NoReturn


def serve() -> None:
    selector = selectors.DefaultSelector()
    requests = os.fdopen(0, "rb", buffering=0)
    selector.register(requests, selectors.EVENT_READ)
    pids: dict[int, int] = {}  # by pidfd
    try:
        while True:
            for key, _ in selector.select():
                if key.fileobj is not requests:
                    fd = key.fd
                    selector.unregister(fd)
                    os.close(fd)
                    pid = pids.pop(fd)
                    exit_code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    tell({"ended": pid, "exit_code": exit_code})
                elif line := requests.readline():
                    pid = start(**json.loads(line))
                    fd = os.pidfd_open(pid)
                    pids[fd] = pid
                    selector.register(fd, selectors.EVENT_READ)
                    tell({"started": pid})
                else:
                    return
    finally:
        for fd in pids:
            signal.pidfd_send_signal(fd, signal.SIGKILL)


def start(argv: list[str], log: str) -> int:
    return os.fork() or be_engine(argv, log)


def be_engine(argv: list[str], log: str) -> NoReturn:
    """What `runtime/engine/__main__.py` does as a program."""
    from runtime.engine.__main__ import main

    exit_code = 1
    try:
        os.closerange(3, 256)  # pidfds and whatever else is the parent's
        written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for fd in (1, 2):
            os.dup2(written, fd)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        exit_code = main(argv)
    except SystemExit as end:  # argparse refuses a flag
        exit_code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(exit_code)


def tell(answer: dict[str, int]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    import runtime.engine.__main__
    import runtime.engine.ranks.worker
    import runtime.engine.server.lifecycle
    import runtime.engine.server.loading  # noqa: F401  # what the forks share

    gc.freeze()  # a collection in a fork would copy every page
    serve()
