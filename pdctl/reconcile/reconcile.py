"""Launch plan and observed state to change set. Pure, and the only place that decides what happens.

An instance lives and dies as a whole: when one of its processes must start or change, all of them do. A
router is an instance of its own, so it restarts only when its own command changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pdctl.plan.model import Instance, LaunchPlan, ProcessSpec
from pdctl.reconcile.fields import field_changes
from pdctl.reconcile.model import Change, ChangeSet, FieldChange, Op
from pdctl.state.observed import ObservedProcess, ObservedState, Phase

MAX_NAMED_FIELDS = 3


def reconcile(plan: LaunchPlan, observed: ObservedState, *, restart: Collection[str] = ()) -> ChangeSet:
    """What must be done so that `plan` runs, and why; `restart` holds ids of instances to restart anyway.

    Stops come first, in reverse start order; then the plan's processes in start order.
    """
    wanted = {process.id: process for process in plan.processes}
    world = _World(
        running={each.id: each for each in observed.processes},
        unreachable={node.name for node in observed.unreachable},
    )
    strays = [
        _stop(each, "not in the topology")
        for each in observed.processes
        if each.id not in wanted and _is_alive(each)
    ]
    by_process: dict[str, Change] = {}
    for instance in plan.instances:
        members = [wanted[process_id] for process_id in instance.process_ids]
        for change in _instance_changes(instance, members, world, is_restart=instance.id in restart):
            by_process[change.process_id] = change
    in_order = [by_process[process.id] for process in plan.processes]
    return ChangeSet(changes=(*reversed(strays), *in_order))


def narrowed(
    changes: ChangeSet, plan: LaunchPlan, observed: ObservedState, instance_ids: Collection[str]
) -> tuple[ChangeSet, frozenset[str]]:
    """What of `changes` is about these instances and what they start after, and ids of all those processes.

    What they need is started where it does not run; where it runs, it is left as it is. The ids are also of
    what runs, starts after them, and has all else that it needs: a router serves again only with its workers.
    """
    wanted = {process.id: process for process in plan.processes}
    alive = {each.id for each in observed.processes if each.phase.is_alive}
    named = {each.id for each in plan.processes if each.instance_id in instance_ids}
    needed_by = _needed_by(plan, named)
    broken = {wanted[each].instance_id for each in needed_by if each not in alive}
    kept: list[Change] = []
    for change in changes.changes:
        needer = needed_by.get(change.process_id)
        if change.process_id in named:
            kept.append(change)
        elif needer is not None and wanted[change.process_id].instance_id in broken:
            kept.append(replace(change, cause=f"{change.cause}; `{needer}` needs it"))
    scope = {*named, *needed_by}
    behind = {
        each.id
        for each in plan.processes
        if each.id in alive and not scope.isdisjoint(each.after) and scope | alive >= set(each.after)
    }
    return ChangeSet(changes=tuple(kept)), frozenset(scope | behind)


def _needed_by(plan: LaunchPlan, named: Collection[str]) -> dict[str, str]:
    """What else has to run, whole instances, each with one that needs it."""
    wanted = {process.id: process for process in plan.processes}
    members = {instance.id: instance.process_ids for instance in plan.instances}
    found: dict[str, str] = {}
    pending = sorted(named)
    while pending:
        process = wanted[pending.pop()]
        for process_id in (*process.after, *members[process.instance_id]):
            if process_id not in named and process_id not in found:
                found[process_id] = process.id
                pending.append(process_id)
    return found


def stop_everything(observed: ObservedState) -> ChangeSet:
    """Stop all that lives, in reverse order of ids: routers, then prefill, then decode."""
    alive = sorted((each for each in observed.processes if _is_alive(each)), key=lambda each: each.id)
    return ChangeSet(changes=tuple(_stop(each, "the deployment goes down") for each in reversed(alive)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _World:
    """The observed state by name, for plans of a thousand processes."""

    running: Mapping[str, ObservedProcess]
    unreachable: Collection[str]


def _instance_changes(
    instance: Instance, members: Sequence[ProcessSpec], world: _World, *, is_restart: bool
) -> Iterator[Change]:
    own = [_own_change(member, world, is_restart=is_restart) for member in members]
    trigger = next((change for change in own if change.op is not Op.KEEP), None)
    for change in own:
        if trigger is None or change.op is not Op.KEEP:
            yield change
        else:
            cause = f"`{instance.id}` restarts as a whole: `{trigger.process_id}` {_verb(trigger.op)}"
            yield Change(op=Op.REPLACE, process_id=change.process_id, node=change.node, cause=cause)


def _own_change(process: ProcessSpec, world: _World, *, is_restart: bool) -> Change:
    """What this process needs by itself, its siblings aside."""

    def change(op: Op, cause: str, fields: tuple[FieldChange, ...] = ()) -> Change:
        return Change(op=op, process_id=process.id, node=process.node, cause=cause, fields=fields)

    if process.node in world.unreachable:
        return change(Op.KEEP, f"`{process.node}` is unreachable, so what runs there is unknown")
    running = world.running.get(process.id)
    if running is None:
        return change(Op.CREATE, "not running")
    if not running.phase.is_alive:
        op = Op.REPLACE if running.num_alive else Op.CREATE
        return change(op, _end(running))
    if running.digest is None:
        return change(Op.REPLACE, "its run directory is gone, so what it runs is unknown")
    if running.digest != process.digest:
        fields = field_changes(
            argv_before=running.argv, argv_after=process.argv, env_before=running.env, env_after=process.env
        )
        return change(Op.REPLACE, _difference(running, process, fields), fields)
    if is_restart:
        return change(Op.REPLACE, "restart was asked for")
    return change(Op.KEEP, "runs as planned")


def _difference(running: ObservedProcess, process: ProcessSpec, fields: tuple[FieldChange, ...]) -> str:
    if running.node != process.node:
        return f"moves from `{running.node}` to `{process.node}`"
    if not fields:
        return "its devices changed"
    named = [f"`{field.name}` {field.before or 'unset'} -> {field.after or 'unset'}" for field in fields]
    rest = len(named) - MAX_NAMED_FIELDS
    return ", ".join(named[:MAX_NAMED_FIELDS]) + (f" and {rest} more" if rest > 0 else "")


def _end(running: ObservedProcess) -> str:
    if running.reason is not None:
        return running.reason
    if running.signal is not None:
        return f"ended by signal {running.signal}"
    if running.phase is Phase.LOST:
        return "lost, with no record of its end"
    return f"exited with code {running.exit_code}"


def _stop(process: ObservedProcess, cause: str) -> Change:
    return Change(op=Op.STOP, process_id=process.id, node=process.node, cause=cause)


def _is_alive(process: ObservedProcess) -> bool:
    return process.phase.is_alive or process.num_alive > 0


def _verb(op: Op) -> str:
    return "is not running" if op is Op.CREATE else "changes"
