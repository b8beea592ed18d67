"""Hosts to look around in by hand: `python tests/testbed/hosts VERB BASE ...`, as root.

    up BASE N [NAME=VALUE ...]    boot h1 … hN, with fields of HostSpec such as login_shell=/usr/bin/fish
    console BASE HOST CMD ...     run a command on a host, without any network
    off | boot | cut | heal | hang BASE HOST
    down BASE                     nothing is left on this machine

Then `ssh -F BASE/ssh_config h1`. A set lasts until `down`, or until the next `up` at the same BASE.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[3])

from tests.testbed.hosts import host_set, lifetime  # noqa: E402
from tests.testbed.hosts.host import Host  # noqa: E402
from tests.testbed.hosts.host_spec import HostSpec  # noqa: E402

_ACTS = {
    "off": Host.power_off,
    "boot": Host.boot,
    "cut": Host.cut,
    "heal": Host.heal,
    "hang": Host.hang_sshd,
}


def main(verb: str, base: Path, *words: str) -> None:
    if verb == "up":
        spec = HostSpec(**dict(word.split("=", 1) for word in words[1:]))
        host_set.up(base, {f"h{number + 1}": spec for number in range(int(words[0]))}, is_kept=True)
    elif verb == "down":
        lifetime.down(base)
    elif verb == "console":
        done = host_set.find(base)[words[0]].try_console(*words[1:])
        print(done.stdout, done.stderr, sep="", end="")
        raise SystemExit(done.returncode)
    else:
        try:
            _ACTS[verb](host_set.find(base)[words[0]])
        except AssertionError as error:  # what a host can't do as it is
            raise SystemExit(str(error)) from None


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(sys.argv[1], Path(sys.argv[2]).absolute(), *sys.argv[3:])
