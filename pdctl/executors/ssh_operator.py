"""Who pdctl runs as, as SSH configurations see it."""

from __future__ import annotations

import getpass
import platform
from collections.abc import Mapping
from pathlib import Path

from pdctl.executors.ssh_login import Operator


def this_operator(environ: Mapping[str, str]) -> Operator:
    home = environ.get("HOME") or str(Path.home())
    return Operator(user=_user(environ), home=home, machine=platform.node())


def _user(environ: Mapping[str, str]) -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's account without a name
        return environ.get("USER", "root")
