"""One node, reached through its shell: ships the shim when it is missing, calls its verbs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pdctl.alike import limited
from pdctl.diagnostics import Diagnostic, DiagnosticError, Excerpt
from pdctl.executors.archive import shim_archive
from pdctl.executors.shell import Completed, LineStream, Shell, UnreachableError
from pdctl.fields import FieldError, Fields, parse_fields
from pdctl.hostlist import fold
from pdctl.state.observed import UnreachableNode

CALL_TIMEOUT_S = 30.0
RETRY_PAUSE_S = 1.0  # before a lost call is asked again
SHIP_TRIES = 3
UNABLE_CODES = frozenset({"PD501", "PD502"})  # of a node that is reached, but serves no call
MAX_QUOTED_LINES = 10

# Go where run directories lie on this node, which only the node knows, then become the command: no question
# and answer is spent on it. Where there is no shim yet, say where it belongs, without starting Python for it.
# No `!`, quote or backslash: those would need an encoding, which costs the node a process (`remote_command`).
_LACKING = 75
_ENTER = (
    'case "$XDG_STATE_HOME" in /*) state=$XDG_STATE_HOME;; *) state=$HOME/.local/state;; esac; '
    'root=$state/pdctl/run; cd "$root" 2>/dev/null; '
    f'[ -f "$3" ] || if command -v "$0" >/dev/null; then printf %s "$root"; exit {_LACKING}; fi; '
    'exec "$0" "$@"'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbCall:
    """One verb of the shim; `names` come behind the root of run directories, for verbs that want it."""

    verb: str
    names: tuple[str, ...] = ()
    request: Mapping[str, object] = field(default_factory=dict[str, object])


class NodeLink:
    """`name` is None for a machine that stands for every node. May be used from several threads at a time."""

    def __init__(self, *, name: str | None, shell: Shell, python: str, root: str | None = None) -> None:
        self.name = name
        self._shell = shell
        # Neither its site-packages nor its environment matter to the shim.
        self._python = [python, "-I", "-S"]
        self._root = root  # of run directories, absolute; None: the node's own
        self._own_root = root  # the same, once the node has told
        self._has_shim = False
        self._has_shipped = False

    @property
    def label(self) -> str:
        return self.name or "this machine"

    def root(self) -> str:
        """What the shim on this node takes for the root of run directories."""
        return self._root or "."

    def call(
        self,
        verb: str,
        names: Sequence[str] = (),
        request: Mapping[str, object] | None = None,
        *,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Fields:
        """Run one verb to its end. The answer, list or object, lies in the field `answer`."""
        stdin = json.dumps(request or {}).encode()
        done = self._shell.run(self._argv(verb, names), stdin=stdin, timeout_s=timeout_s)
        for _ in range(SHIP_TRIES):  # another operator's last `down` may remove it again at once
            if not _lacks_shim(done):
                break
            self._ship(done)
            done = self._shell.run(self._argv(verb, names), stdin=stdin, timeout_s=timeout_s)
        if _lacks_shim(done):
            raise self._not_shipped("its folder does not last")
        if done.code != 0:
            raise self._failed(done, verb)
        try:
            answer = parse_fields(f"`{verb}` on {self.label}", b'{"answer":%b}' % (done.stdout or b"null"))
        except FieldError as error:
            raise self._failed(done, verb) from error
        self._has_shim = True
        return answer

    def call_all(self, calls: Sequence[VerbCall], *, timeout_s: float = CALL_TIMEOUT_S) -> tuple[Fields, ...]:
        """Several verbs in one round trip, each answer in the field `answer` of its own.

        Raises `DiagnosticError` with all that could not be served.
        """
        request = {
            "calls": [
                {"verb": each.verb, "names": list(each.names), "request": dict(each.request)}
                for each in calls
            ]
        }
        answers = self.call("do", (), request, timeout_s=timeout_s).objects("answer")
        faults = [
            self._refused(call.verb, error)
            for call, answer in zip(calls, answers, strict=True)
            if (error := answer.optional_text("error")) is not None
        ]
        if faults:
            raise DiagnosticError(faults)
        return answers

    def call_again(
        self,
        calls: Sequence[VerbCall],
        *,
        timeout_s: float = CALL_TIMEOUT_S,
        pause_s: float = RETRY_PAUSE_S,
    ) -> tuple[Fields, ...]:
        """`call_all` for verbs that may be asked twice: a lost answer is asked for once more."""
        try:
            return self.call_all(calls, timeout_s=timeout_s)
        except UnreachableError:
            time.sleep(pause_s)
            return self.call_all(calls, timeout_s=timeout_s)

    def follow(self, verb: str, names: Sequence[str], request: Mapping[str, object]) -> LineStream:
        """Start a verb that streams."""
        return self._shell.follow(self.command(verb, names), stdin=json.dumps(request).encode())

    def command(self, verb: str, names: Sequence[str]) -> list[str]:
        """argv of a verb, for whoever runs it on the node by other means than `call`.

        Where no call has proved yet that the shim is there, one before it does.
        """
        if not self._has_shim:
            self.call("list", [self.root()])
        return self._argv(verb, names)

    def tidy(self) -> None:
        """Take away the shim that this link has shipped, unless something on the node needs it."""
        if self._has_shipped:
            self._shell.run(self._argv("tidy", [self.root()]), timeout_s=CALL_TIMEOUT_S)

    def _argv(self, verb: str, names: Sequence[str]) -> list[str]:
        name = shim_archive().name
        if self._root is None:
            return ["sh", "-c", _ENTER, *self._python, name, verb, *names]
        return [*self._python, f"{self._root}/{name}", verb, *names]

    def _ship(self, lacking: Completed) -> None:
        if lacking.code == _LACKING:
            self._own_root = lacking.stdout.decode("utf-8", "surrogateescape")
        try:
            self._shell.put(f"{self._own_root}/{shim_archive().name}", shim_archive().content)
        except FileNotFoundError:  # the folder was removed while we wrote; the next try tells
            return
        except OSError as error:
            raise self._not_shipped(error.strerror or str(error)) from error
        self._has_shipped = True

    def _not_shipped(self, why: str) -> DiagnosticError:
        return DiagnosticError.one(
            "PD501",
            f"cannot put the shim on {self.label}: {why}",
            help=f"make `{self._own_root}` writable, or free some space there",
            names=(self.label,),
        )

    def _failed(self, done: Completed, verb: str) -> DiagnosticError:
        if done.code == 127:
            return DiagnosticError.one(
                "PD501",
                f"{self.label} has no Python at `{self._python[0]}`",
                notes=("pdctl supervises processes with a small script that needs Python 3.8 or later",),
                help="install Python there, or name its interpreter as `cluster.ssh.python`",
                names=(self.label,),
            )
        if (refusal := _refusal(done)) is not None:
            return DiagnosticError([self._refused(verb, refusal)])
        text = (done.stderr or done.stdout).decode("utf-8", "replace")
        lines = tuple(text.strip().splitlines()[-MAX_QUOTED_LINES:])
        return DiagnosticError.one(
            "PD502",
            f"the shim on {self.label} failed at `{verb}` with code {done.code}",
            excerpts=(Excerpt(title="what it said", lines=lines),) if lines else (),
            names=(self.label,),
        )

    def _refused(self, verb: str, why: str) -> Diagnostic:
        return Diagnostic(
            code="PD502", message=f"the shim on {self.label} failed at `{verb}`: {why}", names=(self.label,)
        )


def unreachable_node(node: str, error: UnreachableError) -> DiagnosticError:
    return unreachable_nodes([lost_node(node, error)])


def lost_node(name: str, error: UnreachableError, *, since_s: float = 0.0) -> UnreachableNode:
    return UnreachableNode(
        name=name,
        reason=str(error),
        since_s=since_s,
        code=error.code,
        notes=error.notes,
        help=error.help,
        commands=error.commands,
    )


def unreachable_nodes(nodes: Sequence[UnreachableNode], *, notes: tuple[str, ...] = ()) -> DiagnosticError:
    """All of them at once, those with the same reason in one; a node that tells more of itself does so."""
    by_reason: dict[tuple[str, str, str | None], list[UnreachableNode]] = {}
    faults: list[Diagnostic] = []
    for node in nodes:
        if node.fault is None:
            by_reason.setdefault((node.code, node.reason, node.help), []).append(node)
        else:
            faults.append(replace(node.fault, notes=(*node.fault.notes, *notes)))
    faults += [
        Diagnostic(
            code=code,
            message=f"{fold(node.name for node in group)} can't be reached: {reason}",
            notes=(*_own_notes(group), *notes, "what runs there is unknown; unreachable is not stopped"),
            help="\n".join((help or "make the node reachable and repeat the command", *_commands(group))),
        )
        for (code, reason, help), group in by_reason.items()
    ]
    return DiagnosticError(faults)


def _own_notes(group: Sequence[UnreachableNode]) -> tuple[str, ...]:
    return limited(tuple(dict.fromkeys(note for node in group for note in node.notes)))


def _commands(group: Sequence[UnreachableNode]) -> tuple[str, ...]:
    return limited(tuple(dict.fromkeys(command for node in group for command in node.commands)))


def _lacks_shim(done: Completed) -> bool:
    """Ours, or Python's own words for a script that does not exist; the same from 3.8 to 3.14."""
    return done.code == _LACKING or (done.code == 2 and b"can't open file" in done.stderr)


def _refusal(done: Completed) -> str | None:
    """Why the shim itself says that it can't do it; None when it could not even say that."""
    try:
        return parse_fields("the refusal", done.stdout).optional_text("error") if done.code == 2 else None
    except FieldError:
        return None
