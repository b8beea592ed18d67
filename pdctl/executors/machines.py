"""The machines of a cluster, asked one by one or many at a time; a lost one never hides the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.executors.fan_out import at_once
from pdctl.executors.link import NodeLink, unreachable_node
from pdctl.executors.lost import LostNodes
from pdctl.executors.shell import UnreachableError

T = TypeVar("T")
Asked = TypeVar("Asked")


class Machines:
    """`links` are the distinct machines; `link_of` gives a node's, None where there is no such node."""

    def __init__(
        self,
        *,
        links: Sequence[NodeLink],
        link_of: Callable[[str], NodeLink | None],
        fan_out: int,
        lost: LostNodes,
    ) -> None:
        self.links = tuple(links)
        self._link_of = link_of
        self._fan_out = fan_out
        self._lost = lost

    def since_s(self, link: NodeLink) -> float:
        """Seconds since a machine was lost; zero where it is not."""
        return self._lost.since_s(link)

    def link(self, node: str) -> NodeLink:
        link = self._link_of(node)
        if link is None:
            raise DiagnosticError.one(
                "PD504",
                f"the cluster has no node `{node}`",
                help="name it under `cluster.nodes`, or use the topology that started it",
            )
        return link

    def on_first_reachable(self, ask: Callable[[NodeLink], T]) -> T:
        """The lock lies on one node, the first that answers: every operator tries them in the same order."""
        lost: UnreachableError | None = None
        for link in self.links:
            try:
                return self.unless_lost(link, lambda link=link: ask(link))
            except UnreachableError as error:
                lost = error
        raise unreachable_node("the cluster", lost or UnreachableError("it has no nodes"))

    def ask_each(
        self, ask: Callable[[NodeLink], T], links: Sequence[NodeLink] | None = None
    ) -> list[T | Exception]:
        """Ask machines at the same time. What one raises is its answer."""
        return at_once(
            lambda link: self.unless_lost(link, lambda: ask(link)),
            self.links if links is None else links,
            fan_out=self._fan_out,
        )

    def ask_all(
        self, ask: Callable[[NodeLink], T], links: Sequence[NodeLink] | None = None
    ) -> list[T | UnreachableError]:
        """The same where only a lost machine is a value; faults of all others are raised as one."""
        found: list[T | UnreachableError] = []
        faults: list[Diagnostic] = []
        for answer in self.ask_each(ask, links):
            match answer:
                case DiagnosticError():
                    faults.extend(answer.diagnostics)
                case UnreachableError():
                    found.append(answer)
                case Exception():
                    raise answer
                case _:
                    found.append(answer)
        if faults:
            raise DiagnosticError(dict.fromkeys(faults))
        return found

    def unless_lost(self, link: NodeLink, ask: Callable[[], T]) -> T:
        """A node that was lost a moment ago, and does not answer yet, costs no second time-out."""
        self._lost.require_reachable(link)
        try:
            return ask()
        except UnreachableError as error:
            self._lost.note(link, error)
            raise

    def grouped(
        self,
        items: Sequence[Asked],
        node_of: Callable[[Asked], str],
        ask: Callable[[NodeLink, Sequence[Asked]], Sequence[T]],
        lost: Callable[[Asked, UnreachableError], T],
    ) -> tuple[T, ...]:
        """One call per machine for all its items, machines at the same time, answers in the items' order."""
        groups: dict[NodeLink, list[int]] = {}
        for index, item in enumerate(items):
            groups.setdefault(self.link(node_of(item)), []).append(index)
        results = self.ask_all(
            lambda link: ask(link, [items[index] for index in groups[link]]), tuple(groups)
        )
        found: dict[int, T] = {}
        for indices, result in zip(groups.values(), results, strict=True):
            if isinstance(result, UnreachableError):
                found.update((index, lost(items[index], result)) for index in indices)
            else:
                found.update(zip(indices, result, strict=True))
        return tuple(found[index] for index in range(len(items)))
