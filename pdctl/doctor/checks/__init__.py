"""The checks, in the order in which their verdicts are shown: first what everything else depends on.

Each is a pure function from a survey to findings. A check says something of every node that it concerns: that
all is well, what is wrong, or why it can't tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pdctl.doctor.checks.clock import check_clock
from pdctl.doctor.checks.devices import check_devices
from pdctl.doctor.checks.disk import check_disk
from pdctl.doctor.checks.fabric import check_fabric
from pdctl.doctor.checks.leftovers import check_leftovers
from pdctl.doctor.checks.limits import check_limits
from pdctl.doctor.checks.machines import check_machines
from pdctl.doctor.checks.model_files import check_model_files
from pdctl.doctor.checks.network import check_network
from pdctl.doctor.checks.ports import check_ports
from pdctl.doctor.checks.programs import check_programs
from pdctl.doctor.checks.reach import check_reach
from pdctl.doctor.checks.shared_memory import check_shared_memory
from pdctl.doctor.model import Finding
from pdctl.doctor.survey import Survey

Check = Callable[[Survey], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    check_reach,
    check_machines,
    check_clock,
    check_disk,
    check_shared_memory,
    check_limits,
    check_programs,
    check_model_files,
    check_devices,
    check_fabric,
    check_leftovers,
    check_ports,
    check_network,
)
