"""What the `ssh` program says when it can't log in, as the faults that every transport tells. Pure.

The messages are those of OpenSSH 7.4 to 10; they are not translated.
"""

from __future__ import annotations

import re
from dataclasses import replace

from pdctl.executors.known_hosts import KnownHosts
from pdctl.executors.shell import UnreachableError
from pdctl.executors.ssh_faults import (
    bad_settings,
    cut_off,
    forwards_nothing,
    host_key_changed,
    host_key_revoked,
    host_key_unknown,
    hung_up,
    jump_failed,
    key_locked,
    key_unusable,
    no_route,
    not_ssh,
    permission_denied,
    refused,
    silent,
    unanswered,
    unforwarded,
    unresolvable,
)
from pdctl.executors.ssh_login import Login

# What is said last when the way through a jump host has ended, and there was a reason before it.
_AFTER_PROXY = (
    "kex_exchange_identification: Connection closed",
    "ssh_exchange_identification: Connection closed",
    "Connection closed by UNKNOWN",
    "Connection timed out during banner exchange",
    "Connection to UNKNOWN port",
)
# What `ssh -v` says besides, on its own account.
_CHATTER = ("debug", "OpenSSH_", "Authenticated to ", "Transferred: ", "Bytes per second: ")
_NOT_FORWARDED = ("stdio forwarding failed", "Stdio forwarding request failed")
_NEEDS_MORE = ("Host key verification failed", "Permission denied (", *_NOT_FORWARDED)
_CONNECT = re.compile(r"connect to host \S+ port (?P<port>\d+): (?P<words>.+)")
_DENIED = re.compile(r"(?:(?P<user>\S+)@\S+: )?Permission denied \((?P<methods>[^)]*)\)")
_BAD_KEY = re.compile(r'Load key "(?P<path>[^"]+)": (?P<why>.+)')
_WHOSE_KEY = re.compile(r"ost key (?:is known )?for (?P<name>\S+) (?:and|has)")
_SERVER_KEY = re.compile(r"Server host key: (?P<type>\S+) (?P<fingerprint>\S+)")
_OFFERED = re.compile(r"Offering public key: (?P<key>\S+)")
_CONFIG_WORDS = (
    "onfiguration option",
    "Can't open user config file",
    "Bad owner or permissions on",
    ": line ",
)
_CLOSED = re.compile(
    r"exchange_identification: (?:read: )?(?:Connection (?:closed by remote host|reset by peer))"
    r"|Connection (?:closed|reset) by \S+ port \d+"
)
_NO_SSH = re.compile(r"banner line contains invalid characters|Bad remote protocol version|No SSH version")


def needs_closer_look(said: str, login: Login) -> bool:
    """Whether `ssh -v` would tell what a diagnostic has to name: a fingerprint, keys that were tried.

    And what a jump host's own `ssh` said: without `-v` it is silenced in connections that are kept.
    """
    return any(words in said for words in _NEEDS_MORE) or (
        login.proxy_jump is not None and any(words in said for words in _AFTER_PROXY)
    )


def is_hung_up(fault: UnreachableError, login: Login) -> bool:
    """Whether a server, the node's or a jump host's, has closed the connection: it may have too many."""
    return str(hung_up(login.port)) in str(fault)


def fault_of(said: str, login: Login, known: KnownHosts, *, connect_timeout_s: float) -> UnreachableError:
    """`said` is what `ssh` or `ssh -v` wrote; `known` holds `login.known_hosts`."""
    plain = "\n".join(line for line in said.splitlines() if not line.startswith(_CHATTER))
    return (
        _jump_fault(plain, said, login, known, connect_timeout_s)
        or _network_fault(plain, login, connect_timeout_s)
        or _host_key_fault(plain, said, login, known)
        or _login_fault(plain, said, login)
        or _greeting_fault(plain, login, connect_timeout_s)
        or _other_fault(plain)
    )


def _jump_fault(
    plain: str, said: str, login: Login, known: KnownHosts, connect_timeout_s: float
) -> UnreachableError | None:
    """What a host on the way says comes first, then that the connection through it has ended."""
    jump = login.proxy_jump
    if jump is None:
        return None
    if any(words in plain for words in _NOT_FORWARDED):
        is_refused = "administratively prohibited" in said
        return jump_failed(jump, forwards_nothing() if is_refused else unforwarded(login.port))
    lines = plain.splitlines()
    own = [line for line in lines if not line.startswith(_AFTER_PROXY)]
    if own == lines:
        return None
    if own:
        way = replace(login, proxy_jump=None)
        told = "\n".join(line for line in said.splitlines() if not line.startswith(_AFTER_PROXY))
        return jump_failed(jump, fault_of(told, way, known, connect_timeout_s=connect_timeout_s))
    # Whether the node or its sshd gives no answer, the jump host doesn't tell.
    return unanswered(login.port, connect_timeout_s) if "timed out" in plain else None


def _network_fault(said: str, login: Login, connect_timeout_s: float) -> UnreachableError | None:
    if "Could not resolve hostname" in said:
        return unresolvable(login.host, login.config)
    found = _CONNECT.search(said)
    if found is None:
        return None
    port, words = int(found["port"]), found["words"].strip().lower()
    if "refused" in words:
        return refused(port)
    return unanswered(port, connect_timeout_s) if "timed out" in words else no_route(port, words)


def _host_key_fault(plain: str, said: str, login: Login, known: KnownHosts) -> UnreachableError | None:
    is_changed = "REMOTE HOST IDENTIFICATION HAS CHANGED" in plain
    is_revoked = "REVOKED HOST KEY" in plain
    if not (is_changed or is_revoked or "Host key verification failed" in plain):
        return None
    shown = list(_SERVER_KEY.finditer(said))
    key_type, fingerprint = (shown[-1]["type"], shown[-1]["fingerprint"]) if shown else ("?", "unknown")
    whose = _WHOSE_KEY.search(plain)  # a jump host's, perhaps
    name = whose["name"] if whose else login.host_key_name
    if is_revoked:
        return host_key_revoked(name, key_type, fingerprint)
    if is_changed:
        expected = [key.fingerprint for key in known.keys_of(name) if key.type == key_type]
        return host_key_changed(
            name,
            key_type,
            fingerprint,
            expected[0] if expected else "another",
            known.files_of(name),
            by_hand=login.by_hand,
        )
    return host_key_unknown(name, key_type, fingerprint, login.known_hosts, by_hand=login.by_hand)


def _login_fault(plain: str, said: str, login: Login) -> UnreachableError | None:
    bad_key = _BAD_KEY.search(plain)
    if bad_key is not None and bad_key["path"] == login.stated_identity:
        if "passphrase" in bad_key["why"]:
            return key_locked(bad_key["path"])
        return key_unusable(bad_key["path"], _why_unusable(bad_key["why"].strip()))
    denied = _DENIED.search(plain)
    if denied is None and "Too many authentication failures" not in plain:
        return None
    tried = tuple(dict.fromkeys(found["key"] for found in _OFFERED.finditer(said)))
    user = (denied and denied["user"]) or login.user
    methods = tuple(filter(None, denied["methods"].split(","))) if denied else ()
    return permission_denied(user, tried, methods)


def _why_unusable(words: str) -> str:
    if words in ("invalid format", "error in libcrypto"):
        return "it is no private key"
    return "others than you may read it" if words == "bad permissions" else words.lower()


def _greeting_fault(plain: str, login: Login, connect_timeout_s: float) -> UnreachableError | None:
    if "timed out during banner exchange" in plain or re.search(
        r"Connection to \S+ port \d+ timed out", plain
    ):
        return silent(login.port, connect_timeout_s)
    if _NO_SSH.search(plain):
        return not_ssh(login.port)
    return hung_up(login.port) if _CLOSED.search(plain) else None


def _other_fault(plain: str) -> UnreachableError:
    last = last_line(plain)
    if any(words in plain for words in _CONFIG_WORDS):
        return bad_settings(last)
    if not last:
        return cut_off()
    return UnreachableError(
        f"`ssh` says: {last}", code="PD510", help="run `ssh` by hand from here, and see what it takes"
    )


def last_line(plain: str) -> str:
    lines = plain.strip().splitlines()
    return lines[-1].strip() if lines else ""
