"""What a host of the testbed shall be like, and the files that make it so."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

VOLATILE = ("/dev/shm", "/run", "/tmp")  # a host's own, in memory, and empty when it boots

_SSHD = """\
Port 22
HostKey /etc/ssh/testbed_host_key
PidFile /run/sshd.pid
AuthorizedKeysFile /etc/ssh/testbed_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PermitRootLogin yes
MaxStartups 512
MaxSessions 256
UseDNS no
PrintMotd no
PrintLastLog no
Subsystem sftp internal-sftp
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """The plain host is what most clusters have: root, bash, Python, key login, room on the disk."""

    user: str = "root"  # who logs in; another name gets an account and a home
    login_shell: str = "/bin/bash"
    hostname: str | None = None  # None: as the host is named in the set
    files: Mapping[str, str] = field(
        default_factory=dict[str, str]
    )  # path → content, there before the first boot
    sshd: tuple[str, ...] = ()  # lines of sshd_config that win over the usual ones
    accepts_key: bool = True  # the set's own key
    has_python: bool = True  # False: no `python3` on the search path
    is_home_read_only: bool = False
    home_bytes: int | None = None  # a home of that size in memory, lost at a reboot
    shares: tuple[str, ...] = ()  # folders of this machine that the host may write to, at the same path

    @property
    def home(self) -> str:
        return "/root" if self.user == "root" else f"/home/{self.user}"


# MaxStartups and MaxSessions as sshd has them without any configuration.
SSHD_LIMITS = ("MaxStartups 10:30:100", "MaxSessions 10")


def write_host(
    spec: HostSpec, folder: Path, *, public_key: str, hosts_file: str, read_only: list[Path]
) -> None:
    """Lay out `folder` for boot.sh: the files of the disk and the mounts. The host key is not of this."""
    texts = {
        "/etc/hosts": hosts_file,
        "/etc/hostname": f"{spec.hostname or folder.name}\n",
        "/etc/ssh/sshd_testbed.conf": "\n".join((*spec.sshd, _SSHD)),
        "/etc/ssh/testbed_keys": public_key if spec.accepts_key else "",
        "/etc/passwd": _passwd(spec),
        "/etc/shadow": _shadow(spec),
        **spec.files,
    }
    for path, text in texts.items():
        file = folder / "files" / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (folder / "extra.sh").write_text("\n".join(_extra_lines(spec, read_only)) + "\n", encoding="utf-8")


def _passwd(spec: HostSpec) -> str:
    """The machine's accounts, with ours in place of its namesake."""
    number = 0 if spec.user == "root" else 2000
    ours = f"{spec.user}:x:{number}:{number}:testbed:{spec.home}:{spec.login_shell}"
    return _with_account(Path("/etc/passwd"), spec.user, ours)


def _shadow(spec: HostSpec) -> str:
    """`*` is no password; `!` would lock the account for keys too."""
    return _with_account(Path("/etc/shadow"), spec.user, f"{spec.user}:*:19000:0:99999:7:::")


def _with_account(table: Path, user: str, line: str) -> str:
    others = [each for each in table.read_text().splitlines() if not each.startswith(f"{user}:")]
    return "\n".join([line, *others]) + "\n"


def _extra_lines(spec: HostSpec, read_only: list[Path]) -> list[str]:
    """Shell lines that boot.sh runs when the disk is mounted at `$root`, on every boot."""
    lines: list[str] = []
    for path in (*map(str, read_only), *spec.shares):
        here, there = shlex.quote(path), f'"$root"{shlex.quote(path)}'
        lines += [f"mkdir -p {there}", f"mount --bind {here} {there}"]
        if path not in spec.shares:
            lines.append(f"mount -o remount,bind,ro {there}")
    home = f'"$root"{shlex.quote(spec.home)}'
    if spec.user != "root":
        lines += [f"mkdir -p {home}", f"chown -R 2000:2000 {home}"]
    if not spec.has_python:
        lines.append('rm -f "$root"/usr/bin/python* "$root"/usr/local/bin/python*')
    if spec.home_bytes is not None:
        lines.append(f"mount -t tmpfs -o size={spec.home_bytes} tmpfs {home}")
    if spec.is_home_read_only:
        lines += [f"mount --bind {home} {home}", f"mount -o remount,bind,ro {home}"]
    return lines
