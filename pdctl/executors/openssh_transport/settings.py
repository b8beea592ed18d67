"""What the `ssh` program is told: a file for all hosts of a topology, and options of one host. Pure.

A file, since `ssh` hands it on to the process that stands for a jump host, and options it doesn't. The first
value that `ssh` finds counts: options, then the topology's word, then the operator's own configuration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pdctl.executors.ssh_faults import bad_settings
from pdctl.executors.ssh_login import Asked
from pdctl.topology.model import Ssh

PERSIST_S = 10  # how long a connection stays open after its last use
MISSED_KEEPALIVES = 3  # unanswered ones, after which the connection counts as cut
_OWN_FILES = ("~/.ssh/config", "/etc/ssh/ssh_config")  # what `ssh` reads where no file is named

# No question can be answered, no host key is taken on trust, and nothing that the operator's configuration
# opens for work at a terminal gets in the way. The exchange of keys and the ciphers are the operator's.
_SETTINGS = """\
# Written by pdctl: what a topology says under `cluster.ssh`, before the configuration of whoever runs it.
BatchMode yes
StrictHostKeyChecking yes
ConnectTimeout {connect_timeout_s}
ServerAliveInterval {keepalive_s}
ServerAliveCountMax {missed}
LogLevel ERROR
RequestTTY no
RemoteCommand none
PermitLocalCommand no
ClearAllForwardings yes
ForwardAgent no
ForwardX11 no
# A jump host is logged in to once for all nodes behind it.
ControlMaster auto
ControlPath "{jump_socket}"
ControlPersist {persist_s}
"""


def settings_text(ssh: Ssh, *, jump_socket: str) -> str:
    """`jump_socket` is a path as `ControlPath` takes it, with the tokens that tell jump hosts apart.

    Raises `UnreachableError` for a path that a configuration of `ssh` can't hold.
    """
    lines = [
        _SETTINGS.format(
            connect_timeout_s=_whole(ssh.connect_timeout_s),
            keepalive_s=_whole(ssh.keepalive_s),
            missed=MISSED_KEEPALIVES,
            jump_socket=jump_socket,
            persist_s=PERSIST_S,
        )
    ]
    if ssh.identity_file is not None:
        lines.append(f"IdentityFile {_quoted(ssh.identity_file)}\n")
    if ssh.known_hosts is not None:
        lines.append(f"UserKnownHostsFile {_quoted(ssh.known_hosts)}\n")
    lines += [f"Include {_quoted(path)}\n" for path in ((ssh.config,) if ssh.config else _OWN_FILES)]
    return "".join(lines)


def unshared(settings: str) -> str:
    """The same settings for a look at what fails, which a connection that is there already would hide."""
    return f"ControlMaster no\nControlPath none\n{settings}"


def ssh_argv(asked: Asked, settings: str, socket: str) -> list[str]:
    """The program with all that is the same for every call to one host; `settings` and `socket` are paths."""
    options = {
        "User": asked.user,
        "Port": None if asked.port is None else str(asked.port),
        "IdentityFile": None if asked.identity_file is None else _quoted(asked.identity_file),
        "ProxyJump": asked.proxy_jump,
    }
    stated = [f"-o{name}={value}" for name, value in options.items() if value is not None]
    return ["ssh", "-F", settings, "-S", socket.replace("%", "%%"), "-T", *stated]


def look_argv(asked: Asked, settings: str, socket: str, connect_timeout_s: float) -> list[str]:
    """The same, to see why logging in fails.

    It waits longer than the process that stands for a jump host, which isn't told: that one must speak first.
    """
    timeout = f"-oConnectTimeout={2 * _whole(connect_timeout_s)}"
    return [*ssh_argv(asked, settings, socket), timeout, "-v"]


def connect_argv(argv: Sequence[str], host: str) -> list[str]:
    """Log in, and leave the connection open in the background for a while.

    Where another process was faster it uses that one's connection, and leaves nothing behind.
    """
    return [*argv, "-n", "-oControlMaster=auto", "--", host, "exit"]  # a word of every login shell


def command_argv(argv: Sequence[str], host: str, line: str) -> list[str]:
    """Over the open connection; where it is gone, or takes no more sessions, over one of its own."""
    return [*argv, "-oControlMaster=no", "--", host, line]


def _whole(seconds: float) -> int:
    return max(1, math.ceil(seconds))


def _quoted(path: str) -> str:
    if any(sign in path for sign in '"\\\n'):
        raise bad_settings(f"{path!r} can't stand in a configuration of `ssh`")
    return f'"{path}"'
