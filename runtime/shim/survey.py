"""The verb `survey`: what a node has to offer, asked by `pdctl doctor` and before `pdctl up` starts anything.

One request may ask for several nodes, since one machine may stand for all of them. Each part of a question is
optional; the answer has the same parts. Nothing is judged here, and nothing but short-lived listeners is
started.
"""

from __future__ import annotations

import os
import sys
import time

from .record import RequestError, checked_nodes


def survey(root: str, questions: object) -> list[dict]:
    """One answer per question, in their order."""
    received_at = time.time()
    nodes = checked_nodes(questions)
    answers = [_answer(root, node) for node in nodes]
    _meet(nodes, answers)
    answered_at = time.time()
    for answer in answers:
        answer.update(received_at=received_at, answered_at=answered_at)
    return answers


def _answer(root: str, question: dict) -> dict:
    """Imports are inside, so that a call pays only for what it is asked."""
    from .survey_host import folder, limits, machine

    answer: dict = {
        "python": "%d.%d.%d" % sys.version_info[:3],
        "machine": machine(),
        "limits": limits(),
        "folders": [folder(path) for path in [root, *_texts(question, "folders")]],
    }
    if question.get("programs"):
        from .survey_programs import program

        answer["programs"] = [
            program(each, cwd=os.path.dirname(sys.argv[0])) for each in question["programs"]
        ]
    if question.get("ports"):
        from .ports import ports

        answer["ports"] = ports(question["ports"])
    if question.get("deployments"):
        from .survey_leftovers import deployments

        answer["deployments"] = deployments(root, question.get("node"))
    if question.get("devices"):
        from .survey_devices import devices

        answer["devices"] = devices()
    if question.get("rdma"):
        from .survey_fabric import gpu_direct, rdma_devices

        answer["rdma"], answer["gpu_direct"] = rdma_devices(), gpu_direct()
    if question.get("models"):
        from .survey_model import model

        answer["models"] = [model(path) for path in _texts(question, "models")]
    return answer


def _meet(questions: list[dict], answers: list[dict]) -> None:
    """One process listens for all nodes that this machine stands for. To some, nobody is to come."""
    if not any("listen" in question for question in questions):
        return
    from .meeting import attend, open_doors

    opened = [open_doors(question.get("listen") or []) for question in questions]
    attendant = attend([door for doors in opened for door in doors if door.listener])
    for doors, answer in zip(opened, answers):
        answer["listening"] = [{"port": door.port, "problem": door.problem} for door in doors]
        answer["attendant"] = attendant


def _texts(question: dict, name: str) -> list[str]:
    found = question.get(name) or []
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise RequestError("`%s` is not a list of text" % name)
    return found
