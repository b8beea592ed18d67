from __future__ import annotations

from collections.abc import Callable

Found = Callable[..., list[str]]


def test_kinds_that_exist_are_fine(found: Found) -> None:
    assert found("cluster: {executor: local}\nrouter: {kind: sglang_router}\n", "PD126") == []


def test_kinds_that_do_not_exist_are_refused(found: Found) -> None:
    lines = "cluster: {executor: lokal}\nrouter: {kind: minilb}\n"
    assert found(lines, "PD126", engine="referense") == [
        "error 0:16 there is no engine `referense`",
        "error 1:21 there is no executor `lokal`",
        "error 2:16 there is no router `minilb`",
    ]


def test_the_executors_to_choose_from_are_told(
    hints: Callable[[str, str], list[str | None]],
) -> None:
    assert hints("cluster: {executor: k8s}\n", "PD126") == ["known here: `local`, `slurm`, `ssh`"]
