"""Faults of many processes and nodes, told once."""

from __future__ import annotations

from pdctl.alike import folded
from pdctl.diagnostics import Diagnostic, Excerpt


def ended(number: int, *lines: str, how: str = "exited with code 1", ran_s: float = 1.2) -> Diagnostic:
    process, node = f"prefill-{number}.0", f"n{number + 1:02}"
    return Diagnostic(
        code="PD602",
        message=f"`{process}` {how} before the deployment was ready",
        notes=(f"it ran for {ran_s} s on `{node}`",),
        help="mend the cause",
        excerpts=(Excerpt(title=f"last lines of `{process}`", lines=lines),) if lines else (),
        names=(process, node),
    )


def test_one_fault_of_many_processes_is_told_once_with_all_of_them() -> None:
    (fault,) = folded(ended(number) for number in range(16))
    assert fault.message == "`prefill-[0-15].0` exited with code 1 before the deployment was ready"
    assert fault.notes == ("it ran for 1.2 s on `n[01-16]`",)


def test_faults_that_differ_in_more_than_their_names_stand_apart() -> None:
    found = folded((ended(0), ended(1, how="was ended by signal 9"), ended(2)))
    assert [each.message.partition(" before")[0] for each in found] == [
        "`prefill-[0,2].0` exited with code 1",
        "`prefill-1.0` was ended by signal 9",
    ]


def test_a_note_names_those_who_say_it() -> None:
    (fault,) = folded((ended(0), ended(1, ran_s=3.4), ended(2)))
    assert fault.notes == ("it ran for 1.2 s on `n[01,03]`", "it ran for 3.4 s on `n02`")


def test_many_different_notes_are_cut_off() -> None:
    (fault,) = folded(ended(number, ran_s=number) for number in range(16))
    assert len(fault.notes) == 11
    assert fault.notes[-1] == "and 6 more like these"


def test_the_last_lines_of_one_stand_for_others_that_differ_in_numbers() -> None:
    (fault,) = folded(ended(number, f"12:00:0{number} no port 300{number}") for number in range(3))
    (excerpt,) = fault.excerpts
    assert excerpt.title == "last lines of `prefill-0.0`, the others differ in numbers only"
    assert excerpt.lines == ("12:00:00 no port 3000",)


def test_other_last_lines_are_another_fault() -> None:
    assert len(folded((ended(0, "no such model"), ended(1, "out of memory")))) == 2


def test_equal_faults_without_names_are_one() -> None:
    fault = Diagnostic(code="PD503", message="the cluster can't be reached")
    assert folded((fault, fault)) == (fault,)


def test_a_name_within_a_longer_one_is_left_alone() -> None:
    one, other = (
        Diagnostic(code="PD501", message=f"{node} has no room for {node}.log", names=(node,))
        for node in ("n1", "n2")
    )
    assert len(folded((one, other))) == 2
