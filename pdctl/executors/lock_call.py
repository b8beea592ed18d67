"""The lock of a deployment on one node: taking it, giving it back, taking it from the provably dead."""

from __future__ import annotations

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.calls import Standing
from pdctl.executors.link import NodeLink
from pdctl.fields import FieldError, Fields
from pdctl.state.lock import Acquired, Held, LockOutcome, Owner, is_dead, owner_from_fields
from pdctl.state.pending import pending_from_fields


def take_lock(link: NodeLink, deployment: str, owner: Owner) -> LockOutcome:
    """One attempt, and a second against a dead holder, which only wins if that very holder still has it."""
    answer = _ask(link, deployment, owner, None)
    if not answer.flag("acquired"):
        holder = _read_owner(answer.object("holder"), deployment)
        if not is_dead(holder):
            return Held(holder=holder)
        answer = _ask(link, deployment, owner, holder.token)
    if not answer.flag("acquired"):
        return Held(holder=_read_owner(answer.object("holder"), deployment))
    replaced = answer.optional_object("replaced")
    return Acquired(dead_owner=_read_owner(replaced, deployment) if replaced else None)


def give_back_lock(link: NodeLink, deployment: str, owner: Owner) -> None:
    link.call("unlock", [link.root(), deployment], {"token": owner.token})


def ask_standing(link: NodeLink, deployment: str) -> Standing:
    """The holder as it is written down, dead or not, and what an earlier `down` could not reach."""
    answer = link.call("holder", [link.root(), deployment]).object("answer")
    found = answer.optional_object("holder")
    return Standing(
        holder=_read_owner(found, deployment) if found else None,
        pending=pending_from_fields(answer.objects("pending")),
    )


def _ask(link: NodeLink, deployment: str, owner: Owner, replace: str | None) -> Fields:
    request = {"owner": owner.to_json(), "replace": replace}
    answer = link.call("lock", [link.root(), deployment], request).object("answer")
    error = answer.optional_text("error")
    if error is not None:
        raise DiagnosticError.one(
            "PD505", f"{link.label}: {error}", help="free some space there, and try again"
        )
    return answer


def _read_owner(found: Fields, deployment: str) -> Owner:
    try:
        return owner_from_fields(found)
    except FieldError as error:
        raise DiagnosticError.one(
            "PD505",
            f"the lock of `{deployment}` can't be read: {error}",
            notes=("another version of pdctl may hold it",),
            help="remove `operator.json` from the deployment's run directory once nobody works on it",
        ) from error
