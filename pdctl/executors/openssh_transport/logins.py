"""All logins of one executor: the folder of their sockets, and the settings that they share."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.openssh_transport.connection import NodeConnection, Settings
from pdctl.executors.openssh_transport.settings import settings_text, unshared
from pdctl.executors.openssh_transport.shell import OpensshShell
from pdctl.executors.ssh_login import asked_for
from pdctl.executors.ssh_operator import this_operator
from pdctl.topology.model import HostSsh, Ssh

# A socket's path has 107 bytes, of which `ssh` takes 17 while it makes one, and its name 1 + 8 + 1 + 40.
_MAX_FOLDER_BYTES = 107 - 17 - 50


class OpensshLogins:
    """Nothing is connected before a shell is used. `DiagnosticError` where `ssh` can't be used at all."""

    def __init__(self, ssh: Ssh, environ: Mapping[str, str]) -> None:
        if shutil.which("ssh", path=environ.get("PATH")) is None:
            raise DiagnosticError.one(
                "PD511",
                "there is no `ssh` program here",
                notes=("`cluster.ssh.transport` is `openssh`",),
                help="install OpenSSH's client, or leave `transport` out",
            )
        self._ssh = ssh
        self._environ = environ
        self._folder = _own_folder(environ)
        self._settings = _write_settings(self._folder, ssh)
        self._operator = this_operator(environ)

    def shell(self, node: HostSsh, host: str) -> OpensshShell:
        """`host` is what to connect to where the node's settings name nothing else."""
        connection = NodeConnection(
            asked_for(self._ssh, node, host),
            self._ssh,
            folder=self._folder,
            settings=self._settings,
            operator=self._operator,
            environ=self._environ,
        )
        return OpensshShell(connection, command_timeout_s=self._ssh.command_timeout_s)


def socket_folder(environ: Mapping[str, str], uid: int) -> Path:
    """Short, on this machine, gone with the session where there is one. Pure."""
    session = environ.get("XDG_RUNTIME_DIR", "")
    folder = Path(session) / "pdctl-ssh"
    if session.startswith("/") and len(os.fsencode(folder)) <= _MAX_FOLDER_BYTES:
        return folder
    return Path(f"/tmp/pdctl-ssh-{uid}")


def _own_folder(environ: Mapping[str, str]) -> Path:
    """Whoever may write there could answer in the place of our nodes: it has to be ours alone."""
    folder = socket_folder(environ, os.getuid())
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise _no_folder(folder, error.strerror or str(error)) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise _no_folder(folder, "it is not yours alone")
    return folder


def _no_folder(folder: Path, why: str) -> DiagnosticError:
    return DiagnosticError.one(
        "PD512",
        f"`{folder}` can't hold connections of `ssh`: {why}",
        help="remove it, or set `XDG_RUNTIME_DIR` to a folder of yours",
    )


def _write_settings(folder: Path, ssh: Ssh) -> Settings:
    """Named after what they say, so that several topologies and terminals of the user share the folder."""
    name = hashlib.sha256(settings_text(ssh, jump_socket="").encode()).hexdigest()[:8]
    text = settings_text(ssh, jump_socket=f"{str(folder).replace('%', '%%')}/{name}-%C")
    return Settings(
        usual=_written(folder / f"{name}.conf", text),
        for_a_look=_written(folder / f"{name}-look.conf", unshared(text)),
    )


def _written(path: Path, text: str) -> str:
    temporary = path.with_name(f"{secrets.token_hex(8)}.tmp")
    temporary.write_text(text, encoding="utf-8")
    return str(temporary.replace(path))
