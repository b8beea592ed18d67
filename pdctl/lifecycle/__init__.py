"""What people do with deployments, one file per act: the face that the command line talks to."""

from pdctl.lifecycle.access import deployments
from pdctl.lifecycle.down import DownOutcome, down
from pdctl.lifecycle.interrupt import Interrupted
from pdctl.lifecycle.logs import LogLine, logs
from pdctl.lifecycle.planning import Planned, TopologySource, compare, plan_file
from pdctl.lifecycle.status import status
from pdctl.lifecycle.up import UpOptions, UpOutcome, restart, up

__all__ = [
    "DownOutcome",
    "Interrupted",
    "LogLine",
    "Planned",
    "TopologySource",
    "UpOptions",
    "UpOutcome",
    "compare",
    "deployments",
    "down",
    "logs",
    "plan_file",
    "restart",
    "status",
    "up",
]
