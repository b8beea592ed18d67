"""Look whether the ports of processes about to start are free, and say who has them if not."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.executors.base import Executor
from pdctl.executors.calls import PortAnswer, PortQuery
from pdctl.executors.link import unreachable_nodes
from pdctl.plan.model import PortClaim, ProcessSpec
from pdctl.state.observed import UnreachableNode


def require_free_ports(
    deployment: str,
    processes: Sequence[ProcessSpec],
    executor: Executor,
    *,
    stopping: Collection[str],
    answered: Sequence[PortAnswer] = (),
) -> None:
    """Raise `DiagnosticError` with every port that a stranger holds; `stopping` will give theirs up.

    What `answered` tells is not asked again.
    """
    wanted = [(process, claim) for process in processes for claim in process.ports]
    queries = [
        PortQuery(node=process.node, host=process.listen, port=claim.port) for process, claim in wanted
    ]
    leaving = {f"{deployment}/{process_id}" for process_id in stopping}
    known_answers = {answer.query: answer for answer in answered}
    open_queries = [query for query in queries if query not in known_answers]
    if open_queries:
        known_answers |= {answer.query: answer for answer in executor.ports(open_queries)}
    answers = [known_answers[query] for query in queries]
    require_reachable(answers)
    in_the_way = [
        (process, claim, answer)
        for (process, claim), answer in zip(wanted, answers, strict=True)
        if answer.problem is not None and answer.process not in leaving
    ]
    if in_the_way:
        known = executor.deployments()
        raise DiagnosticError(
            port_fault(process, claim, answer, known=known) for process, claim, answer in in_the_way
        )


def require_reachable(answers: Sequence[PortAnswer]) -> None:
    """Raise `DiagnosticError` with every node that could not be asked: its ports can't be promised."""
    lost = {answer.query.node: answer.problem or "" for answer in answers if answer.is_unreachable}
    if lost:
        raise unreachable_nodes([UnreachableNode(name=name, reason=reason) for name, reason in lost.items()])


def port_fault(
    process: ProcessSpec, claim: PortClaim, answer: PortAnswer, *, known: Collection[str]
) -> Diagnostic:
    if answer.problem != "taken":
        return Diagnostic(
            code="PD411",
            message=f"`{process.id}` can't listen on {process.listen} port {claim.port}: {answer.problem}",
            notes=(f"the address is tried on node `{process.node}`",),
            names=(process.id, process.node, process.listen),
        )
    if answer.process is not None:
        name = answer.process.partition("/")[0]
        elsewhere = "" if name in known else ", with the `PDCTL_STATE_DIR` that it was started with"
        holder, help = (
            f"`{answer.process}` of pdctl",
            f"`pdctl down {name}`{elsewhere}, or choose other ports",
        )
    else:
        who = f"process {answer.pid}" if answer.pid is not None else "another process"
        holder = f"{who} (`{answer.command}`)" if answer.command else who
        help = f"stop it, or choose another port: `--set {_key(process, claim)}=NUMBER`"
    return Diagnostic(
        code="PD410",
        message=f"port {claim.port} on `{process.node}` is taken by {holder}",
        notes=(f"`{process.id}` needs it as its {claim.name} port",),
        help=help,
        names=(process.id, process.node, answer.process or str(answer.pid or "")),
    )


def _key(process: ProcessSpec, claim: PortClaim) -> str:
    name = "bootstrap_port" if claim.name == "bootstrap" else "port"
    return f"{process.role}.{name}"
