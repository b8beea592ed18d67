"""Why a node could not be logged in to, in one wording for every transport: each fault is a pure function.

Reasons name no node and no address, so that a view can tell many nodes of one reason together; what differs
between nodes is a note.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from pdctl.executors.shell import UnreachableError

_PROBE_HELP = "see whether `ssh` reaches it from here"


def unresolvable(host: str, config: str = "~/.ssh/config") -> UnreachableError:
    """`config` is the file where the operator may add the name."""
    return UnreachableError(
        "its name can't be resolved",
        code="PD515",
        notes=(f"looked up `{host}`",),
        help=f"set `address` or `ssh.host` of the node, or add the name to `{config}`",
    )


def refused(port: int) -> UnreachableError:
    return UnreachableError(
        f"the connection to port {port} was refused",
        code="PD516",
        help="start sshd there, or set `ssh.port`",
    )


def unanswered(port: int, timeout_s: float) -> UnreachableError:
    return UnreachableError(
        f"nothing answers at port {port} within {timeout_s:g} s",
        code="PD516",
        help=f"see that the node is up and that no firewall is in between; {_PROBE_HELP}",
    )


def no_route(port: int, words: str) -> UnreachableError:
    """`words` are the operating system's, such as `no route to host`."""
    return UnreachableError(
        f"no way to port {port}: {words}", code="PD516", help=f"look at the network; {_PROBE_HELP}"
    )


def silent(port: int, timeout_s: float) -> UnreachableError:
    return UnreachableError(
        f"port {port} takes connections but greets nobody within {timeout_s:g} s",
        code="PD517",
        notes=("sshd hangs, is overloaded, or something else listens there",),
        help="look at sshd on the node's console",
    )


def hung_up(port: int) -> UnreachableError:
    return UnreachableError(
        f"port {port} takes connections and closes them without a greeting",
        code="PD517",
        notes=(
            "sshd drops connections above its `MaxStartups`, and those of addresses that it doesn't like",
        ),
        help="look at the log of sshd on the node; raise its `MaxStartups`, or lower `cluster.ssh.fan_out`",
    )


def not_ssh(port: int) -> UnreachableError:
    return UnreachableError(
        f"what listens at port {port} is no SSH server", code="PD517", help="set `ssh.port` of the node"
    )


def host_key_unknown(
    host: str, key_type: str, fingerprint: str, files: Sequence[str], *, by_hand: str
) -> UnreachableError:
    """`host` as known_hosts writes it, `[name]:port` included; `by_hand` logs in and asks about the key."""
    return UnreachableError(
        "its host key is not known",
        code="PD518",
        notes=(f"`{host}` shows the {key_type} key {fingerprint}", f"looked in {_listed(files)}"),
        help="compare the fingerprint with the node's own, then log in once and accept it:",
        commands=(by_hand,),
    )


def host_key_changed(
    host: str, key_type: str, fingerprint: str, known: str, files: Sequence[str], *, by_hand: str
) -> UnreachableError:
    """`known` is the fingerprint that was expected, `files` have it; `by_hand` asks about the new one."""
    return UnreachableError(
        "its host key has changed",
        code="PD519",
        notes=(
            f"`{host}` shows the {key_type} key {fingerprint}, known is {known}",
            f"known from {_listed(files)}",
            "the node was installed anew, or something poses as it: nothing was sent",
        ),
        help="find out why; if the new key is right, forget the old one and accept it:",
        commands=(*(shlex.join(["ssh-keygen", "-R", host, "-f", file]) for file in files), by_hand),
    )


def host_key_revoked(host: str, key_type: str, fingerprint: str) -> UnreachableError:
    return UnreachableError(
        "its host key is revoked",
        code="PD519",
        notes=(f"`{host}` shows the {key_type} key {fingerprint}",),
        help="never trust this key again; give the node another one",
    )


def permission_denied(user: str, tried: Sequence[str], methods: Sequence[str] = ()) -> UnreachableError:
    """`tried` names the keys that were offered; `methods` are those that the server would take."""
    return UnreachableError(
        f"`{user}` may not log in",
        code="PD520",
        notes=(
            f"tried {_listed(tried)}" if tried else "there was no key to try",
            *((f"the server takes {', '.join(methods)}",) if methods else ()),
        ),
        help="set `cluster.ssh.user` and `identity_file`, or add the public key to `~/.ssh/authorized_keys` "
        "there",
    )


def key_unusable(path: str, why: str) -> UnreachableError:
    return UnreachableError(
        f"the key `{path}` can't be used: {why}",
        code="PD521",
        help="name a private key of yours as `identity_file`",
    )


def key_locked(path: str) -> UnreachableError:
    return UnreachableError(
        f"the key `{path}` has a passphrase, and no agent holds it",
        code="PD521",
        help=f"run `ssh-add {path}`, in a session with `ssh-agent`",
    )


def jump_failed(hop: str, fault: UnreachableError) -> UnreachableError:
    """The node itself was never asked: what failed is a host on the way."""
    return UnreachableError(
        f"the jump host `{hop}` can't be passed: {fault}",
        code="PD522",
        notes=fault.notes,
        help=fault.help,
        commands=fault.commands,
    )


def forwards_nothing() -> UnreachableError:
    return UnreachableError(
        "it forwards no connections",
        code="PD522",
        help="allow `AllowTcpForwarding` in its sshd_config, or take another jump host",
    )


def unforwarded(port: int) -> UnreachableError:
    return UnreachableError(
        f"it gets no connection to port {port} of the node",
        code="PD522",
        help="see that the node is up, and that the jump host knows its name and reaches it",
    )


def no_sessions() -> UnreachableError:
    return UnreachableError(
        "sshd opens no further session",
        code="PD517",
        notes=("it allows `MaxSessions` at a time on a connection",),
        help="raise `MaxSessions` in its sshd_config",
    )


def no_shell(user: str, said: str) -> UnreachableError:
    """The login worked, but no command begins; `said` is what came instead."""
    return UnreachableError(
        f"the login shell of `{user}` runs no command",
        code="PD523",
        notes=(f"it said: {said}",) if said else (),
        help="give the account a shell, and see that `authorized_keys` forces no other command",
    )


def bad_settings(words: str) -> UnreachableError:
    """The operator's own SSH configuration can't be used."""
    return UnreachableError(
        f"the SSH configuration can't be used: {words}",
        code="PD524",
        help="mend it, or name another file as `cluster.ssh.config`",
    )


def cut_off() -> UnreachableError:
    return UnreachableError("the connection was cut")


def too_slow(timeout_s: float) -> UnreachableError:
    return UnreachableError(f"no answer within {timeout_s:g} s")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
