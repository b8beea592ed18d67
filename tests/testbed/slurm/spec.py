"""What one Slurm cluster is like, and the configuration files that make it so."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.slurm.claim import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSpec:
    """Nodes `node1` … `nodeN` in partition `main`; `urgent` takes nodes away from jobs in `main`.

    Slurm believes in the processors, memory and accelerators that it is told of.
    """

    num_nodes: int = 8
    gpus: int = 8  # of each node, type `h100`; 0: the cluster knows no gres
    cpus: int = 16
    slurmd_timeout_s: int = 10  # a silent node is down after about three times that
    message_timeout_s: int = 5  # what Slurm's commands and daemons wait for an answer, twice at most
    kill_wait_s: int = 5  # between TERM and KILL when Slurm ends a job
    min_job_age_s: int = 300  # how long a job that has ended is remembered
    preempt_grace_s: int = 20
    max_time_minutes: int = 600  # of jobs in `main`
    refuses_beyond_limits: bool = False  # refuse, rather than let wait, what no partition can ever run
    extra: str = ""  # lines of slurm.conf


def write_config(spec: SlurmSpec, claim: Claim, base: Path) -> None:
    """`slurm.conf`, `gres.conf`, `cgroup.conf` and munge's key."""
    for name in ("etc", "log", "run", "state", "spool", "munge"):
        (base / name).mkdir(parents=True, exist_ok=True)
    (base / "munge").chmod(0o700)
    key = base / "munge/key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    (base / "etc/slurm.conf").write_text(_slurm_conf(spec, claim, base))
    # Any character device can stand for an accelerator; without `File` the node reports none.
    gres = f"Name=gpu Type=h100 File=/dev/tty[0-{spec.gpus - 1}]\n" if spec.gpus else ""
    (base / "etc/gres.conf").write_text(gres)
    # The default plugin ends slurmd where /sys/fs/cgroup isn't mounted, though nothing here uses it.
    (base / "etc/cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")


def _slurm_conf(spec: SlurmSpec, claim: Claim, base: Path) -> str:
    lines = [
        _CONF.format(
            base=base,
            host=socket.gethostname(),
            port=claim.controller_port,
            munge_socket=claim.folder / "munge.sock",
            number=claim.number,
            spec=spec,
            limits="ALL" if spec.refuses_beyond_limits else "NO",
        ),
        *(["GresTypes=gpu"] if spec.gpus else []),
        *(_node(spec, claim, index) for index in range(1, spec.num_nodes + 1)),
        f"PartitionName=main Nodes=ALL Default=YES MaxTime={spec.max_time_minutes} State=UP"
        f" PriorityTier=1 PreemptMode=REQUEUE GraceTime={spec.preempt_grace_s}",
        "PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF",
        spec.extra,
    ]
    return "\n".join(lines) + "\n"


def _node(spec: SlurmSpec, claim: Claim, index: int) -> str:
    gres = f" Gres=gpu:h100:{spec.gpus}" if spec.gpus else ""
    return (
        f"NodeName=node{index} NodeHostname={socket.gethostname()} NodeAddr={claim.node_address(index)}"
        f" Port={claim.node_port(index)} CPUs={spec.cpus} Boards=1 SocketsPerBoard=1"
        f" CoresPerSocket={spec.cpus} ThreadsPerCore=1 RealMemory=64000{gres} State=UNKNOWN"
    )


# `cred_expire` is also how long a requeued job is held. From `batch_sched_delay` on: jobs start at once.
_CONF = """\
ClusterName=testbed{number}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={munge_socket},cred_expire=5
StateSaveLocation={base}/state
SlurmctldPidFile={base}/run/slurmctld.pid
SlurmdPidFile={base}/run/slurmd-%n.pid
SlurmdSpoolDir={base}/spool/%n
SlurmctldLogFile={base}/log/slurmctld.log
SlurmdLogFile={base}/log/slurmd-%n.log
SlurmctldDebug=info
SlurmdDebug=info
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0,bf_min_age_reserve=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
ReturnToService=1
SlurmctldTimeout=30
SlurmdTimeout={spec.slurmd_timeout_s}
InactiveLimit=0
MessageTimeout={spec.message_timeout_s}
MinJobAge={spec.min_job_age_s}
KillWait={spec.kill_wait_s}
Waittime=0
EnforcePartLimits={limits}
PropagateResourceLimits=NONE"""
