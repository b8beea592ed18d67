"""Why a command of Slurm failed: it isn't here, its controller is silent, or it refuses.

All are diagnostics, so that whoever has no better word for one lets it pass.
"""

from __future__ import annotations

import re

from pdctl.diagnostics import Diagnostic, DiagnosticError

_SILENT = re.compile(
    r"unable to contact slurm controller|socket timed out|connection (refused|timed out|reset)"
    r"|connect failure|zero bytes were transmitted|communication (connection|shutdown) failure"
    r"|network is unreachable|unable to establish control|backup controller|standby mode"
    r"|transport endpoint|no route to host|unable to resolve|name or service not known"
    r"|temporarily unable to accept",
    re.IGNORECASE,
)
_PREFIX = re.compile(r"^\w+: (error|fatal|warning): ")
_MAX_WORDS = 600


class SlurmError(DiagnosticError):
    """A command of Slurm did not do what it was asked."""


class SlurmSilentError(SlurmError):
    """The controller doesn't answer: what it was asked is open, and jobs run on."""


class SlurmRefusedError(SlurmError):
    """Slurm answered, and said no; `words` are its own."""

    def __init__(self, words: str, diagnostic: Diagnostic) -> None:
        super().__init__([diagnostic])
        self.words = words


def means_silence(words: str) -> bool:
    """Whether a command failed because nobody answered it."""
    return _SILENT.search(words) is not None


def in_short(stderr: str) -> str:
    """Slurm's own words on one line, without the names of its commands."""
    lines = [_PREFIX.sub("", line.strip()) for line in stderr.splitlines() if line.strip()]
    return "; ".join(dict.fromkeys(lines))[:_MAX_WORDS]


def silent(command: str, words: str) -> SlurmSilentError:
    return SlurmSilentError(
        [
            Diagnostic(
                code="PD533",
                message=f"Slurm's controller doesn't answer `{command}`",
                notes=(*((in_short(words),) if words else ()), "jobs run on while it is away"),
                help="try again later; `scontrol ping` tells whether it is back",
            )
        ]
    )


def missing(command: str) -> SlurmError:
    return SlurmError(
        [
            Diagnostic(
                code="PD534",
                message=f"this machine has no `{command}`",
                help="run pdctl on a login node of the cluster, with Slurm's commands in PATH",
            )
        ]
    )


def refused(command: str, words: str) -> SlurmRefusedError:
    said = in_short(words) or "without a word"
    return SlurmRefusedError(
        words,
        Diagnostic(code="PD536", message=f"`{command}` failed: {said}"),
    )
