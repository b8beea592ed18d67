"""One node, reached through its shell: ships the shim when it is missing, calls its verbs."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence

from pdctl.diagnostics import DiagnosticError, Excerpt
from pdctl.executors.archive import shim_archive
from pdctl.executors.shell import Completed, LineStream, Shell, UnreachableError
from pdctl.fields import FieldError, Fields, parse_fields

CALL_TIMEOUT_S = 30.0
SHIP_TRIES = 3
MAX_QUOTED_LINES = 10

_HELLO = (
    "import json,os;"
    "state=os.environ.get('XDG_STATE_HOME','');"
    "state=state if state.startswith('/') else os.path.expanduser('~/.local/state');"
    "print(json.dumps({'root':os.path.join(state,'pdctl','run')}))"
)


class NodeLink:
    """`name` is None for a machine that stands for every node. May be used from several threads at a time."""

    def __init__(self, *, name: str | None, shell: Shell, python: str, root: str | None = None) -> None:
        self.name = name
        self._shell = shell
        self._python = [
            python,
            "-I",
            "-S",
        ]  # neither its site-packages nor its environment matter to the shim
        self._root = root  # of run directories; None: asked once, since only the node knows its home
        self._asking = threading.Lock()

    @property
    def label(self) -> str:
        return self.name or "this machine"

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
            self._ship()
            done = self._shell.run(self._argv(verb, names), stdin=stdin, timeout_s=timeout_s)
        if _lacks_shim(done):
            raise self._not_shipped("its folder does not last")
        if done.code != 0:
            raise self._failed(done, verb)
        try:
            return parse_fields(f"`{verb}` on {self.label}", b'{"answer":%b}' % (done.stdout or b"null"))
        except FieldError as error:
            raise self._failed(done, verb) from error

    def follow(self, verb: str, names: Sequence[str], request: Mapping[str, object]) -> LineStream:
        """Start a verb that streams. A call before it proves that the shim is there."""
        self.call("list", [self.root()])
        return self._shell.follow(self._argv(verb, names), stdin=json.dumps(request).encode())

    def root(self) -> str:
        """Absolute path of the run directories on the node."""
        with self._asking:
            if self._root is None:
                done = self._shell.run([*self._python, "-c", _HELLO], timeout_s=CALL_TIMEOUT_S)
                try:
                    self._root = parse_fields(f"the greeting of {self.label}", done.stdout).text("root")
                except FieldError as error:
                    raise self._failed(done, "hello") from error
            return self._root

    def _argv(self, verb: str, names: Sequence[str]) -> list[str]:
        return [*self._python, self._shim_path(), verb, *names]

    def _shim_path(self) -> str:
        return f"{self.root()}/{shim_archive().name}"

    def _ship(self) -> None:
        try:
            self._shell.put(self._shim_path(), shim_archive().content)
        except FileNotFoundError:  # the folder was removed while we wrote; the next try tells
            return
        except OSError as error:
            raise self._not_shipped(error.strerror or str(error)) from error

    def _not_shipped(self, why: str) -> DiagnosticError:
        return DiagnosticError.one(
            "PD501",
            f"cannot put the shim on {self.label}: {why}",
            help=f"make `{self.root()}` writable, or free some space there",
        )

    def _failed(self, done: Completed, verb: str) -> DiagnosticError:
        if done.code == 127:
            return DiagnosticError.one(
                "PD501",
                f"{self.label} has no Python at `{self._python[0]}`",
                notes=("pdctl supervises processes with a small script that needs Python 3.8 or later",),
                help="install Python there, or name its interpreter in `engine.python`",
            )
        if (refusal := _refusal(done)) is not None:
            return DiagnosticError.one("PD502", f"the shim on {self.label} failed at `{verb}`: {refusal}")
        text = (done.stderr or done.stdout).decode("utf-8", "replace")
        lines = tuple(text.strip().splitlines()[-MAX_QUOTED_LINES:])
        return DiagnosticError.one(
            "PD502",
            f"the shim on {self.label} failed at `{verb}` with code {done.code}",
            excerpts=(Excerpt(title="what it said", lines=lines),) if lines else (),
        )


def unreachable_node(node: str, error: UnreachableError) -> DiagnosticError:
    return DiagnosticError.one(
        "PD503",
        f"{node} can't be reached: {error}",
        notes=("what runs there is unknown; unreachable is not stopped",),
        help="make the node reachable and repeat the command",
    )


def _lacks_shim(done: Completed) -> bool:
    """Python's own words for a script that does not exist; the same from 3.8 to 3.14."""
    return done.code == 2 and b"can't open file" in done.stderr


def _refusal(done: Completed) -> str | None:
    """Why the shim itself says that it can't do it; None when it could not even say that."""
    try:
        return parse_fields("the refusal", done.stdout).optional_text("error") if done.code == 2 else None
    except FieldError:
        return None
