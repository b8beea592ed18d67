from __future__ import annotations

import json
import os
import sys

import pytest

from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.executors.archive import shim_archive
from pdctl.executors.link import NodeLink, VerbCall, unreachable_nodes
from pdctl.executors.local import LocalShell
from pdctl.executors.shell import Completed
from pdctl.state.observed import UnreachableNode

SHIM = f"/runs/{shim_archive().name}"


def _link(shell, **fields) -> NodeLink:
    return NodeLink(**{"name": "n1", "shell": shell, "python": "py", "root": "/runs", **fields})


def _failed(call) -> tuple[str, str]:
    with pytest.raises(DiagnosticError) as caught:
        call()
    (fault,) = caught.value.diagnostics
    return fault.code, fault.message


def test_a_call_is_one_command_with_the_request_on_stdin(make_shell):
    shell = make_shell(answers=[["demo"]])
    answer = _link(shell).call("list", ["/runs"], {"a": 1})
    assert answer.texts("answer") == ("demo",)
    assert shell.calls == [(["py", "-I", "-S", SHIM, "list", "/runs"], {"a": 1})]
    assert shell.files == {}


def test_the_shim_is_shipped_when_the_node_lacks_it(make_shell, lacks_shim):
    shell = make_shell(answers=[lacks_shim, ["demo"], ["demo"]])
    link = _link(shell)
    assert link.call("list", ["/runs"]).texts("answer") == ("demo",)
    assert shell.files == {SHIM: shim_archive().content}
    link.call("list", ["/runs"])
    assert len(shell.calls) == 3


def test_a_shim_that_another_operator_removes_meanwhile_is_shipped_again(make_shell, lacks_shim):
    link = _link(make_shell(answers=[lacks_shim, lacks_shim, ["demo"]]))
    assert link.call("list", ["/runs"]).texts("answer") == ("demo",)


def test_a_shim_that_still_is_missing_after_shipping_is_a_fault(make_shell, lacks_shim):
    link = _link(make_shell(answers=[lacks_shim] * 9))
    lost = ("PD501", "cannot put the shim on n1: its folder does not last")
    assert _failed(lambda: link.call("list")) == lost


def test_a_node_whose_root_is_not_known_is_not_asked_for_it_before_a_call(make_shell):
    """The command goes where run directories lie, which only the node knows."""
    shell = make_shell(answers=[["demo"]])
    link = _link(shell, root=None)
    assert link.call("list", [link.root()]).texts("answer") == ("demo",)
    ((argv, _),) = shell.calls
    assert argv[:2] == ["sh", "-c"]
    assert argv[3:] == ["py", "-I", "-S", shim_archive().name, "list", "."]


def test_the_shim_is_shipped_to_where_the_node_says_its_root_is(make_shell):
    root = "/home/u/.local/state/pdctl/run"
    shell = make_shell(answers=[Completed(code=75, stdout=root.encode(), stderr=b""), ["demo"]])
    link = _link(shell, root=None)
    link.call("list", [link.root()])
    assert shell.files == {f"{root}/{shim_archive().name}": shim_archive().content}
    assert shell.calls[1] == shell.calls[0]


@pytest.mark.parametrize("xdg", ["", "absolute", "relative"])
def test_a_command_enters_the_root_that_the_shim_is_shipped_to(tmp_path, xdg):
    """Both ways in which the node finds its root, run by a real shell and a real Python."""
    state = {"": "", "absolute": str(tmp_path / "xdg"), "relative": "xdg"}[xdg]
    argv = ["env", "-i", f"HOME={tmp_path}", f"XDG_STATE_HOME={state}", f"PATH={os.environ['PATH']}"]
    shell = LocalShell()
    link = NodeLink(name="n1", shell=_Prefixed(shell, argv), python=sys.executable)
    assert link.call("list", [link.root()]).texts("answer") == ()
    base = tmp_path / "xdg" if xdg == "absolute" else tmp_path / ".local" / "state"
    assert (base / "pdctl" / "run" / shim_archive().name).is_file()
    link.call("note", [link.root(), "demo"], {"entry": {"a": 1}})
    assert (base / "pdctl" / "run" / "demo").is_dir()


class _Prefixed:
    """A shell whose commands run behind another one, such as one that sets the environment."""

    def __init__(self, shell, prefix) -> None:
        self._shell, self._prefix = shell, prefix

    def run(self, argv, *, stdin=b"", timeout_s):
        return self._shell.run([*self._prefix, *argv], stdin=stdin, timeout_s=timeout_s)

    def put(self, path, content):
        self._shell.put(path, content)


def test_several_verbs_are_one_round_trip(make_shell):
    shell = make_shell(answers=[[{"answer": ["demo"]}, {"answer": {"a": 1}}]])
    calls = [VerbCall(verb="list", names=("/runs",)), VerbCall(verb="probe", request={"requests": []})]
    first, second = _link(shell).call_all(calls)
    assert (first.texts("answer"), second.object("answer").values) == (("demo",), {"a": 1})
    assert shell.calls[0][0][4:] == ["do"]
    assert [each["verb"] for each in shell.calls[0][1]["calls"]] == ["list", "probe"]


def test_of_several_verbs_all_that_failed_are_told(make_shell):
    shell = make_shell(answers=[[{"error": "no space"}, {"answer": 1}, {"error": "no name"}]])
    calls = [VerbCall(verb=verb) for verb in ("start", "status", "keep")]
    with pytest.raises(DiagnosticError) as raised:
        _link(shell).call_all(calls)
    assert [fault.message for fault in raised.value.diagnostics] == [
        "the shim on n1 failed at `start`: no space",
        "the shim on n1 failed at `keep`: no name",
    ]


def test_a_lost_answer_is_asked_for_once_more(make_shell, lost):
    shell = make_shell(answers=[lost, [{"answer": 1}]])
    (answer,) = _link(shell).call_again([VerbCall(verb="start")], pause_s=0.0)
    assert answer.integer("answer") == 1
    assert shell.calls[0] == shell.calls[1]


def test_a_node_without_python_is_told(make_shell):
    link = _link(make_shell(answers=[Completed(code=127, stdout=b"", stderr=b"sh: py: not found")]))
    assert _failed(lambda: link.call("list")) == ("PD501", "n1 has no Python at `py`")


def test_what_a_failing_shim_said_is_quoted(make_shell):
    crash = Completed(code=1, stdout=b"", stderr=b"Traceback\n  boom\nMemoryError\n")
    with pytest.raises(DiagnosticError) as caught:
        _link(make_shell(answers=[crash])).call("status")
    (fault,) = caught.value.diagnostics
    assert fault.code == "PD502"
    assert fault.excerpts[0].lines == ("Traceback", "  boom", "MemoryError")


def test_what_the_shim_itself_says_is_the_message(make_shell):
    refusal = Completed(code=2, stdout=b'{"error": "[Errno 28] No space left on device"}', stderr=b"")
    code, message = _failed(lambda: _link(make_shell(answers=[refusal])).call("keep"))
    assert code == "PD502"
    assert message == "the shim on n1 failed at `keep`: [Errno 28] No space left on device"


@pytest.mark.parametrize("noise", [b"Welcome to n1!\n{}", b"\xff", b'{"cut'])
def test_an_answer_that_is_not_json_is_a_fault_that_shows_it(make_shell, noise):
    link = _link(make_shell(answers=[Completed(code=0, stdout=noise, stderr=b"")]))
    assert _failed(lambda: link.call("status"))[0] == "PD502"


def test_a_root_that_cannot_be_written_is_told(make_shell, lacks_shim):
    shell = make_shell(answers=[lacks_shim])
    shell.put = lambda path, content: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
    code, message = _failed(lambda: _link(shell).call("list"))
    assert (code, message) == ("PD501", "cannot put the shim on n1: Permission denied")


def test_a_stream_begins_after_the_shim_is_there(make_shell, lacks_shim):
    shell = make_shell(answers=[lacks_shim, []], lines=[{"line": "a"}])
    link = _link(shell)
    stream = link.follow("run", [], {"argv": ["x"]})
    assert [json.loads(line) for line in stream] == [{"line": "a"}]
    assert [argv[4] for argv, _ in shell.calls] == ["list", "list", "run"]
    link.follow("run", [], {"argv": ["y"]})
    assert [argv[4] for argv, _ in shell.calls[3:]] == ["run"]  # it is known to be there


def test_nodes_that_are_lost_for_the_same_reason_are_told_together():
    no_route = [UnreachableNode(name=f"n{number}", reason="no route to host") for number in (1, 2, 3)]
    own = Diagnostic(code="PD501", message="n9 has no Python at `py`", help="install Python there")
    lost = [*no_route, UnreachableNode(name="n9", reason=own.message, fault=own)]
    faults = unreachable_nodes(lost, notes=("nothing was started",)).diagnostics
    assert (faults[0].message, faults[0].notes) == (own.message, ("nothing was started",))
    assert faults[1].message == "n[1-3] can't be reached: no route to host"
    assert faults[1].notes[0] == "nothing was started"
