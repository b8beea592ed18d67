"""Why Slurm refused a job, at the key of the topology that it is about.

`sbatch` speaks of options and of the controller's own terms. Its sentences are those of `slurm_errno.c`, the
same from release 20.11 to 25.05 but for their capitals.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pdctl.diagnostics import Diagnostic
from pdctl.executors.slurm_job.faults import SlurmRefusedError, in_short
from pdctl.executors.slurm_job.request import OWNED_OPTIONS
from pdctl.topology.model import Topology
from pdctl.topology.slurm import Slurm
from pdctl.topology.source import DocumentPath, dotted


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sentence:
    pattern: str
    keys: tuple[str, ...]  # of `cluster.slurm`: the first that the document has; `nodes` is the cluster's
    help: str


_SENTENCES = (
    _Sentence(
        pattern="invalid partition",
        keys=("partition",),
        help="`sinfo -s` lists the partitions",
    ),
    _Sentence(
        pattern="group not permitted to use this partition|account/partition combination",
        keys=("account", "partition"),
        help="`sacctmgr show assoc user=$USER` lists what you may use",
    ),
    _Sentence(
        pattern="invalid account",
        keys=("account",),
        help="`sacctmgr show assoc user=$USER` lists your accounts",
    ),
    _Sentence(
        pattern="invalid qos|qos.*not permitted",
        keys=("qos",),
        help="`sacctmgr show assoc user=$USER format=account,qos` lists what you may use",
    ),
    _Sentence(
        pattern="time limit is invalid|invalid --time|time limit.*exceeds",
        keys=("time_limit", "partition"),
        help="`sinfo -o '%P %l'` tells the longest time of each partition",
    ),
    _Sentence(
        pattern="invalid generic resource|invalid gres|gres.*not (valid|available)",
        keys=("gres", "gpus_per_node", "devices_per_node"),
        help="`sinfo -o '%N %G'` tells what nodes have; where the site wants another way,"
        " set `gpus` in its profile",
    ),
    _Sentence(
        pattern="--segment|segment size|topology configuration",
        keys=("segment",),
        help="remove it; where no job may have it, name `segment` under `refuses` in the site profile",
    ),
    _Sentence(
        pattern="invalid feature",
        keys=("constraint",),
        help="`sinfo -o '%N %f'` lists the features of nodes",
    ),
    _Sentence(
        pattern="reservation",
        keys=("reservation",),
        help="`scontrol show reservation` lists them, and who may use them",
    ),
    _Sentence(
        pattern="invalid node name",
        keys=("nodelist", "exclude", "nodes"),
        help="`sinfo -N` lists the nodes",
    ),
    _Sentence(
        pattern="node count specification invalid|more (nodes|processors) requested than permitted",
        keys=("nodes",),
        help="`sinfo -o '%P %D'` tells how many nodes each partition has",
    ),
    _Sentence(
        pattern="memory",
        keys=("memory",),
        help="`sinfo -o '%N %m'` tells what nodes have; `0` asks for all of it",
    ),
    _Sentence(
        pattern="cpu count|cpus-per-task",
        keys=("cpus_per_node",),
        help="`sinfo -o '%N %c'` tells what nodes have",
    ),
    _Sentence(
        pattern="switches",
        keys=("switches",),
        help="write a number, with `@` and a time behind it or nothing",
    ),
    _Sentence(
        pattern="node configuration is not available",
        keys=("gpus_per_node", "gres", "devices_per_node", "constraint", "memory", "cpus_per_node"),
        help="no node has all that is asked for: see `sinfo -N -o '%N %c %m %G %f'`",
    ),
    _Sentence(
        pattern="accounting/qos policy",
        keys=("qos", "account", "time_limit"),
        help="`sacctmgr show qos` and `sacctmgr show assoc user=$USER` tell the limits",
    ),
)
_NO_SUCH_OPTION = re.compile(r"unrecognized option '--([a-z-]+)")


def refusal(error: SlurmRefusedError, topology: Topology) -> SlurmRefusedError:
    """The same, as PD532 at the place in the document that it is about."""
    words = error.words
    path, help = _blame(words, topology)
    return SlurmRefusedError(
        words,
        Diagnostic(
            code="PD532",
            message=f"Slurm refuses the job: {in_short(words) or 'without a word'}",
            span=topology.source.value(*path),
            path=dotted(path),
            help=help,
        ),
    )


def _blame(words: str, topology: Topology) -> tuple[DocumentPath, str | None]:
    if option := _NO_SUCH_OPTION.search(words):
        return _of_option(option[1], topology)
    for sentence in _SENTENCES:
        if re.search(sentence.pattern, words, re.IGNORECASE):
            paths = [_path_of(key) for key in sentence.keys]
            stated = [path for path in paths if path in topology.source.values]
            return (stated or paths)[0], sentence.help
    return ("cluster", "slurm"), None


def _of_option(option: str, topology: Topology) -> tuple[DocumentPath, str]:
    slurm = topology.cluster.slurm or Slurm()
    for index, word in enumerate(slurm.sbatch_args):
        if word.removeprefix("--").partition("=")[0] == option:
            return ("cluster", "slurm", "sbatch_args", index), "this release of Slurm has no such option"
    key = OWNED_OPTIONS.get(option) or "sbatch_args"
    return _path_of(key), f"this release of Slurm has no `--{option}`: remove `{key}`"


def _path_of(key: str) -> DocumentPath:
    return ("cluster", key) if key in ("nodes", "devices_per_node") else ("cluster", "slurm", key)
