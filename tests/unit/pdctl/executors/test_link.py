from __future__ import annotations

import json

import pytest

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.archive import shim_archive
from pdctl.executors.link import NodeLink
from pdctl.executors.shell import Completed

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


def test_the_node_is_asked_once_for_its_root(make_shell):
    shell = make_shell(answers=[{"root": "/home/u/.local/state/pdctl/run"}, [], []])
    link = _link(shell, root=None)
    link.call("list", [link.root()])
    link.call("list", [link.root()])
    assert [argv[3] for argv, _ in shell.calls] == [
        "-c",
        *[f"/home/u/.local/state/pdctl/run/{shim_archive().name}"] * 2,
    ]


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
    stream = _link(shell).follow("run", [], {"argv": ["x"]})
    assert [json.loads(line) for line in stream] == [{"line": "a"}]
    assert [argv[4] for argv, _ in shell.calls] == ["list", "list", "run"]
