"""Devices that a scheduler gave to a step, and a plan's indices into them.

A plan counts the devices of a node from 0. A step may have got others of them, and says so in the variable
that the plan uses, too: of `2,3,6,7`, the plan's `0,1` are `2,3`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Of NVIDIA, AMD (two), Ascend (two) and Intel.
VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES",
    "ASCEND_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
)

NONE = "NoDevFiles"  # what Slurm writes for a step without a device


class NotGiven(Exception):
    """The plan wants a device that the step has not got; its text says so."""


def given_devices(spec_env: Mapping[str, str | None], inherited: Mapping[str, str]) -> dict[str, str]:
    """The plan's variables with what its indices stand for; empty where the scheduler says nothing.

    A value that is no list of indices, such as UUIDs that a user wrote, is left as it is.
    """
    found = {}
    for name in VARIABLES:
        wanted, given = spec_env.get(name), inherited.get(name)
        if not wanted or not given or not all(word.isdigit() for word in wanted.split(",")):
            continue
        devices = [] if given == NONE else given.split(",")
        missing = [word for word in wanted.split(",") if int(word) >= len(devices)]
        if missing:
            raise NotGiven("the plan's %s is `%s`, but the step's is `%s`" % (name, wanted, given))
        found[name] = ",".join(devices[int(word)] for word in wanted.split(","))
    return found
