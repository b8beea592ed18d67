"""Requests to the steward and what it tells of them, as files in the folder that a job shares.

requests/TOKEN.json     asked for; the steward renames it to TOKEN.taken, so that it is begun or withdrawn
events/TOKEN.jsonl      a line for each event; the last line is the outcome, or why there is none
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.events import Event
from pdctl.executors.deputy import Request, Verb
from pdctl.executors.slurm_job.telling import diagnostic_from, diagnostic_json, event_from, event_json
from pdctl.fields import FieldError, Fields, parse_fields
from pdctl.state.files import cannot, read_file, replace_file

MAX_READ_BYTES = 4 << 20
_TOKEN = re.compile(r"[0-9a-z-]{1,64}")
_VERBS: dict[str, Verb] = {"up": "up", "restart": "restart", "down": "down"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mailbox:
    requests: Path
    events: Path

    def post(self, request: Request) -> None:
        replace_file(self.requests / f"{request.token}.json", json.dumps(asdict(request)).encode())

    def take(self) -> Request | None:
        """The oldest request, which nobody can withdraw any more; only the steward takes.

        What can't be read is answered with PD546 and passed over.
        """
        for path in self._waiting():
            taken = path.with_suffix(".taken")
            try:
                path.rename(taken)
            except FileNotFoundError:  # withdrawn meanwhile
                continue
            content = read_file(taken) or b""
            try:
                return _request_from(path.stem, parse_fields("the request", content))
            except FieldError as error:
                self.log(path.stem).fail([_unreadable(error)])
        return None

    def put_back(self) -> None:
        """Let requests that an earlier steward has begun with wait again: each may be done twice."""
        for path in sorted(self.requests.glob("*.taken")):
            path.replace(path.with_suffix(".json"))

    def withdraw(self, token: str) -> bool:
        """False: it was taken, or there is none."""
        try:
            (self.requests / f"{token}.json").unlink()
        except FileNotFoundError:
            return False
        return True

    def is_waiting(self, token: str) -> bool:
        return (self.requests / f"{token}.json").exists()

    def log(self, token: str) -> EventLog:
        return EventLog(path=self.events / f"{token}.jsonl", request=self.requests / f"{token}.taken")

    def reading(self, token: str) -> EventReading:
        return EventReading(path=self.events / f"{token}.jsonl")

    def _waiting(self) -> list[Path]:
        try:
            found = sorted(self.requests.glob("*.json"))
        except OSError as error:
            raise cannot("read", self.requests, error) from error
        return [path for path in found if _TOKEN.fullmatch(path.stem)]


@dataclass(slots=True, kw_only=True)
class EventLog:
    """An `EventSink` that the steward writes; events may come from several threads."""

    path: Path
    request: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def on(self, *events: Event) -> None:
        self._append(*map(event_json, events))

    def finish(self, outcome: Mapping[str, object]) -> None:
        self._append({"outcome": outcome})
        self.request.unlink(missing_ok=True)

    def fail(self, diagnostics: Sequence[Diagnostic]) -> None:
        self._append({"diagnostics": [diagnostic_json(each) for each in diagnostics]})
        self.request.unlink(missing_ok=True)

    def _append(self, *values: Mapping[str, object]) -> None:
        """One write, of a line for each."""
        lines = b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in values)
        try:
            with self._lock, self.path.open("ab", buffering=0) as file:
                file.write(lines)
        except OSError as error:
            raise cannot("write", self.path, error) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What stands new in an event log. With an `outcome` or `diagnostics`, nothing more will come."""

    events: tuple[Event, ...] = ()
    outcome: Fields | None = None
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def is_news(self) -> bool:
        return bool(self.events or self.diagnostics) or self.outcome is not None


@dataclass(slots=True, kw_only=True)
class EventReading:
    """Reads a log that grows. The file is opened anew each time: so NFS looks for what others wrote."""

    path: Path
    max_read_bytes: int = MAX_READ_BYTES
    _offset: int = 0

    def more(self) -> Told:
        """All whole lines since the last time."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                content = file.read(self.max_read_bytes)
        except FileNotFoundError:
            return Told()
        except OSError as error:
            raise cannot("read", self.path, error) from error
        whole = content[: content.rfind(b"\n") + 1]
        if not whole and len(content) == self.max_read_bytes:
            raise DiagnosticError([_unreadable(FieldError(f"`{self.path.name}` has an endless line"))])
        self._offset += len(whole)
        return _told(whole.splitlines())

    def forget(self) -> None:
        """Once the last line is read."""
        self.path.unlink(missing_ok=True)


def _told(lines: Sequence[bytes]) -> Told:
    events: list[Event] = []
    for line in lines:
        try:
            found = parse_fields("an event", line)
            outcome = found.optional_object("outcome")
            if outcome is not None:
                return Told(events=tuple(events), outcome=outcome)
            if "diagnostics" in found.values:
                diagnostics = tuple(diagnostic_from(each) for each in found.objects("diagnostics"))
                return Told(events=tuple(events), diagnostics=diagnostics)
        except FieldError as error:
            return Told(events=tuple(events), diagnostics=(_unreadable(error),))
        event = event_from(found)
        if event is not None:
            events.append(event)
    return Told(events=tuple(events))


def _request_from(token: str, found: Fields) -> Request:
    verb = _VERBS.get(found.text("verb"))
    if verb is None:
        raise FieldError(f"its verb is `{found.text('verb')}`")
    return Request(
        verb=verb,
        who=found.text("who"),
        token=token,
        document=found.optional_text("document"),
        ids=found.texts("ids"),
        options=found.object("options").values,
    )


def _unreadable(error: FieldError) -> Diagnostic:
    return Diagnostic(
        code="PD546",
        message=f"the operator's pdctl and the one in the job don't understand each other: {error}",
        help="use one version of pdctl at both places, then `pdctl down` and `pdctl up`",
    )
