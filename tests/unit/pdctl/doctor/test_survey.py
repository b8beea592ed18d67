"""Asking the nodes: what is asked, who dials whom, and what a lost node costs the others."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import pytest

from pdctl.diagnostics import Diagnostic
from pdctl.doctor.meeting import MET, NOT_DIALLED
from pdctl.doctor.survey import BEFORE_UP, EVERYTHING, survey
from pdctl.executors.calls import NodeQuestion, NodeReply
from pdctl.fields import Fields
from pdctl.state.lock import this_owner

ADDRESS = {"10.0.0.1": "n1", "10.0.0.2": "n2", "10.0.0.3": "n3"}


@dataclass
class ScriptedNodes:
    """Nodes that listen and dial as a script says: `blocked` holds pairs of caller and callee."""

    lost: tuple[str, ...] = ()
    blocked: tuple[tuple[str, str], ...] = ()
    taken: tuple[tuple[str, int], ...] = ()
    asked: list[tuple[str, NodeQuestion]] = field(default_factory=list)
    skew_s: float = 0.0

    def ask(self, verb, questions):
        self.asked += [(verb, question) for question in questions]
        return tuple(self._reply(verb, question) for question in questions)

    def _reply(self, verb, question):
        if question.node in self.lost:
            fault = Diagnostic(code="PD503", message=f"{question.node} can't be reached: gone")
            return NodeReply(node=question.node, faults=(fault,))
        content = json.loads(json.dumps(dict(question.content)))
        answer = {"survey": self._survey, "dial": self._dial, "hang-up": lambda *_: {}}[verb](
            question.node, content
        )
        return NodeReply(
            node=question.node, content=Fields("reply", answer), asked_at=100.0, replied_at=101.0
        )

    def _survey(self, node, content):
        free = {"problem": None, "pid": None, "command": None, "process": None}
        doors = [
            {"port": None, "problem": "taken"}
            if (node, door["port"]) in self.taken
            else {"port": door["port"] or 40000, "problem": None}
            for door in content.get("listen", [])
        ]
        return {
            "received_at": 100.4 + self.skew_s,
            "answered_at": 100.9 + self.skew_s,
            "machine": "one boot 4026531840",
            "python": "3.11.7",
            "limits": {
                "memlock_bytes": None,
                "may_lock_all": False,
                "open_files": 1024,
                "open_files_hard": 65536,
            },
            "folders": [],
            "programs": [
                {"version": "3.11.7", "problem": None, "is_late": False, "packages": []}
                for _ in content["programs"]
            ],
            "ports": [free for _ in content.get("ports", [])],
            "models": [
                {"problem": None, "num_files": 1, "num_bytes": 1, "fingerprint": "f"}
                for _ in content["models"]
            ],
            "listening": doors,
            "attendant": {"pid": 7, "start_ticks": 9},
        }

    def _dial(self, node, content):
        return {
            "outcomes": [
                {"outcome": "silent", "text": "no answer within 3 s"}
                if (node, ADDRESS[target["host"]]) in self.blocked
                else {"outcome": "met", "text": ""}
                for target in content["targets"]
            ]
        }

    def questions(self, verb):
        return {question.node: question.content for asked, question in self.asked if asked == verb}


def outcomes(found):
    return {(each.call.caller, each.call.callee, each.call.port): each.outcome for each in found.calls}


def test_every_node_is_called_twice_when_all_is_well(make_plan):
    nodes = ScriptedNodes()
    found = survey(make_plan(), nodes, EVERYTHING)
    assert set(outcomes(found).values()) == {MET}
    assert [verb for verb, _ in nodes.asked] == ["survey"] * 3 + ["dial"] * 3
    assert [len(content["targets"]) for content in nodes.questions("dial").values()] == [4, 2, 2]


def test_a_dial_names_the_peer_by_address_and_by_a_token_of_its_own(make_plan):
    nodes = ScriptedNodes()
    survey(make_plan(), nodes, EVERYTHING)
    doors = nodes.questions("survey")["n1"]["listen"]
    assert [(door["host"], door["port"], door["num_visits"]) for door in doors] == [
        ("10.0.0.1", 8998, 2),
        ("10.0.0.1", 0, 2),
    ]
    targets = nodes.questions("dial")["n2"]["targets"]
    assert [(target["host"], target["port"]) for target in targets] == [
        ("10.0.0.1", 8998),
        ("10.0.0.1", 40000),
    ]
    assert {target["token"] for target in targets} == {doors[0]["token"]}
    assert doors[0]["token"] != nodes.questions("survey")["n2"]["listen"][0]["token"]


def test_a_node_that_waited_in_vain_is_told_to_stop(make_plan):
    nodes = ScriptedNodes(blocked=(("n2", "n1"),))
    found = survey(make_plan(), nodes, EVERYTHING)
    assert outcomes(found)["n2", "n1", 8998] == "silent"
    assert outcomes(found)["n1", "n2", 30100] == MET
    assert nodes.questions("hang-up") == {"n1": {"pid": 7, "start_ticks": 9}}


def test_a_lost_node_hides_nothing_of_the_others(make_plan):
    nodes = ScriptedNodes(lost=("n3",))
    found = survey(make_plan(), nodes, EVERYTHING)
    assert set(found.facts) == {"n1", "n2"}
    assert found.faults["n3"][0].code == "PD503"
    assert outcomes(found)["n2", "n1", 8998] == MET
    assert outcomes(found)["n3", "n1", 8998] == NOT_DIALLED
    assert outcomes(found)["n1", "n3", 30100] == NOT_DIALLED
    assert nodes.questions("hang-up").keys() == {"n1"}  # it would wait for n3's visit


def test_where_the_deployment_runs_its_own_port_need_not_greet(make_plan):
    nodes = ScriptedNodes(taken=(("n1", 8998),))
    survey(make_plan(), nodes, EVERYTHING)
    (http, _data) = nodes.questions("dial")["n2"]["targets"]
    assert (http["port"], http["token"]) == (8998, None)


@pytest.mark.parametrize("skew_s", [0.0, 34.0, -7.5])
def test_bounds_of_a_clock_hold_whatever_the_way_took(make_plan, skew_s):
    clock = survey(make_plan(), ScriptedNodes(skew_s=skew_s), EVERYTHING).facts["n1"].clock
    assert clock.least_s <= skew_s <= clock.most_s
    assert clock.uncertainty_s == pytest.approx(0.25)


def test_before_up_one_call_asks_for_what_is_quick(make_plan):
    nodes = ScriptedNodes()
    survey(make_plan(), nodes, BEFORE_UP)
    assert [verb for verb, _ in nodes.asked] == ["survey"] * 3
    content = nodes.questions("survey")["n1"]
    assert "listen" not in content
    assert [each["port"] for each in content["ports"]] == [
        30000,
        8998,
        8000,
    ]  # so that applying the plan need not ask again
    assert not content["devices"]


def test_an_answer_of_something_else_is_a_fault_of_that_node(make_plan):
    class Odd(ScriptedNodes):
        def _survey(self, node, content):
            return {**super()._survey(node, content), **({"python": 3} if node == "n2" else {})}

    found = survey(make_plan(), Odd(), EVERYTHING)
    assert set(found.facts) == {"n1", "n3"}
    assert found.faults["n2"][0].code == "PD502"


def test_a_lock_counts_while_its_holder_may_live(make_plan):
    owner = this_owner("up")

    class Locked(ScriptedNodes):
        holder = owner

        def _survey(self, node, content):
            here = {"name": "test", "alive": [], "orphaned": [], "leftover": []}
            return {
                **super()._survey(node, content),
                "deployments": [{**here, "holder": self.holder.to_json()}],
            }

    living = survey(make_plan(), Locked(), EVERYTHING).facts["n1"].deployments
    assert [each.holder for each in living] == [owner.who]
    Locked.holder = replace(owner, boot_id="an earlier boot of this machine")
    dead = survey(make_plan(), Locked(), EVERYTHING).facts["n1"].deployments
    assert [each.holder for each in dead] == [None]
