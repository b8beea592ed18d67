"""The doctor's screen and its JSON."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl.doctor.model import DoctorReport, Topic, folded
from pdctl.events import Warned
from pdctl.views.board import Board, after, board_lines
from pdctl.views.canvas import Canvas
from pdctl.views.doctor import doctor_lines, doctor_value
from pdctl.views.machine import to_json
from pdctl.views.sentences import sentence

Golden = Callable[[str, str], None]
NODES = tuple(f"gpu{number:02}" for number in range(1, 13))


@pytest.fixture
def report() -> DoctorReport:
    reach, clock, memory, network = (Topic(name) for name in ("reach", "clock", "shared memory", "network"))
    findings = (
        *(reach.ok(name, "answers, with Python 3.11.7") for name in NODES[:-1]),
        reach.error(
            NODES[-1],
            "PD503",
            "can't be reached: no answer within 10 s",
            notes=("what runs there is unknown; unreachable is not stopped",),
            help="make the node reachable and repeat the command",
        ),
        *(clock.ok(name, "within 2 s of this machine's") for name in NODES[:6]),
        *(
            clock.warning(
                name,
                "PD701",
                "its clock is 34 s (± 0.2 s) ahead of this machine's",
                help="synchronise the clocks, with chrony or systemd-timesyncd, this machine's too",
            )
            for name in NODES[6:9]
        ),
        *(memory.skipped(name, "nothing was asked") for name in NODES[:11]),
        *(
            network.error(
                name,
                "PD723",
                "no way to gpu[03-04] on port 8998 and any high port: no answer within 3 s",
                notes=("the other way round connections pass",),
                help="open these ports between the nodes, in all firewalls on the way",
            )
            for name in (NODES[0], NODES[7])
        ),
    )
    return DoctorReport(deployment="qwen3", nodes=NODES, verdicts=folded(findings), elapsed_s=1.84)


@pytest.mark.parametrize("width", [None, 80, 40])
def test_the_screen_of_doctor(golden: Golden, report: DoctorReport, width: int | None) -> None:
    lines = doctor_lines(report, Canvas(width=width))
    golden(f"screens/doctor-{width or 'pipe'}.txt", "\n".join(lines) + "\n")


def test_the_screen_of_doctor_in_colour(golden: Golden, report: DoctorReport) -> None:
    golden("screens/doctor-colour.txt", "\n".join(doctor_lines(report, Canvas(width=80, color=True))) + "\n")


def test_the_json_of_doctor(golden: Golden, report: DoctorReport) -> None:
    golden("screens/doctor.json", to_json(doctor_value(report)) + "\n")


def test_a_fit_cluster_is_told_in_one_line_under_the_table() -> None:
    verdicts = folded((Topic("reach").ok("n1", "answers"), Topic("reach").ok("n2", "answers")))
    fit = DoctorReport(deployment="demo", nodes=("n1", "n2"), verdicts=verdicts, elapsed_s=0.31)
    assert list(doctor_lines(fit, Canvas()))[-2:] == ["", "demo: all is well on 2 nodes (took 0.3s)"]


def test_a_warning_before_up_is_a_sentence_and_stays_on_the_board() -> None:
    event = Warned(code="PD704", message="on n2: `/dev/shm` has 16 MiB free of 16 MiB", help=None)
    said = "warning[PD704]: on n2: `/dev/shm` has 16 MiB free of 16 MiB"
    assert sentence(event) == said
    assert list(board_lines(after(Board(), event), Canvas(width=80), max_lines=5)) == [said]
