"""Listening for a moment and dialling, between real processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading


def ask(node, /, **question):
    (answer,) = node.ask_names("survey", str(node.root), request={"nodes": [question]})
    return answer


def dial(node, *targets, timeout_s=3.0):
    request = {"nodes": [{"targets": list(targets), "timeout_s": timeout_s}]}
    (answer,) = node.ask_names("dial", str(node.root), request=request)
    return [outcome["outcome"] for outcome in answer["outcomes"]]


def door(port=0, token="t1", num_visits=1):
    return {"host": "127.0.0.1", "port": port, "token": token, "num_visits": num_visits, "lifetime_s": 60.0}


def target(port, token="t1"):
    return {"host": "127.0.0.1", "port": port, "token": token}


def test_a_door_greets_everybody_who_is_expected_and_is_gone_then(node, is_alive, wait_until):
    answer = ask(node, listen=[door(num_visits=2)])
    (listening,) = answer["listening"]
    assert is_alive(answer["attendant"]["pid"])
    assert dial(node, target(listening["port"])) == ["met"]
    assert is_alive(answer["attendant"]["pid"])
    assert dial(node, target(listening["port"])) == ["met"]
    wait_until(lambda: not is_alive(answer["attendant"]["pid"]))
    assert dial(node, target(listening["port"])) == ["refused"]


def test_an_attendant_can_be_sent_away_and_no_stranger_in_its_place(node, is_alive, wait_until):
    attendant = ask(node, listen=[door()])["attendant"]
    stranger = {**attendant, "start_ticks": attendant["start_ticks"] - 1}
    assert node.ask_names("hang-up", str(node.root), request={"nodes": [stranger]}) == [{"was_there": False}]
    assert is_alive(attendant["pid"])
    assert node.ask_names("hang-up", str(node.root), request={"nodes": [attendant]}) == [{"was_there": True}]
    wait_until(lambda: not is_alive(attendant["pid"]))


def test_an_attendant_leaves_soon_after_the_one_who_asked_was_killed(node, is_alive, wait_until):
    request = json.dumps({"nodes": [{"listen": [door()]}]})
    operator = "import subprocess, sys, time; subprocess.run(sys.argv[2:], input=sys.argv[1].encode())"
    operator += "; time.sleep(60)"
    argv = [sys.executable, "-c", operator, request, *node.argv("survey", str(node.root))]
    environ = {name: text for name, text in os.environ.items() if name != "SSH_CONNECTION"}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environ) as asker:
        (answer,) = json.loads(asker.stdout.readline())
        assert is_alive(answer["attendant"]["pid"])
        asker.kill()
    wait_until(lambda: not is_alive(answer["attendant"]["pid"]))


def test_whoever_answers_with_another_token_is_a_stranger(node):
    (listening,) = ask(node, listen=[door(token="t2")])["listening"]
    assert dial(node, target(listening["port"])) == ["stranger"]


def test_one_who_accepts_and_says_nothing_is_mute_and_one_who_stops_half_way_stalls(node):
    def greet_only():
        with server, server.accept()[0] as visitor:
            visitor.sendall(b"pdctl meets t1\n")
            visitor.recv(1)  # until the other side has had enough

    with socket.create_server(("127.0.0.1", 0)) as mute:
        server = socket.create_server(("127.0.0.1", 0))
        port = server.getsockname()[1]
        thread = threading.Thread(target=greet_only)
        thread.start()
        targets = (target(mute.getsockname()[1]), target(port))
        assert dial(node, *targets, timeout_s=1.5) == ["mute", "stalled"]
        thread.join()


def test_a_taken_port_opens_no_door_and_can_be_dialled_without_a_token(node):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = ask(node, listen=[door(port)], ports=[{"host": "127.0.0.1", "port": port}])
        assert answer["listening"] == [{"port": None, "problem": "taken"}]
        assert answer["attendant"] is None
        assert answer["ports"][0]["problem"] == "taken"
        assert dial(node, target(port, token=None)) == ["met"]


def test_several_nodes_of_one_machine_share_an_attendant(node, is_alive, wait_until):
    request = {"nodes": [{"node": "a", "listen": [door()]}, {"node": "b", "listen": [door(token="t2")]}]}
    first, second = node.ask_names("survey", str(node.root), request=request)
    assert first["attendant"] == second["attendant"]
    ports = [each["listening"][0]["port"] for each in (first, second)]
    assert dial(node, target(ports[0]), target(ports[1], token="t2")) == ["met", "met"]
    wait_until(lambda: not is_alive(first["attendant"]["pid"]))


def test_a_node_that_only_dials_is_answered_that_nobody_listens(node):
    answer = ask(node, listen=[])
    assert (answer["listening"], answer["attendant"]) == ([], None)


def test_deployments_are_told_with_what_lives_of_them(node):
    node.start_python("decode-0.0", "import time; time.sleep(60)")
    assert ask(node, deployments=True, node="n1")["deployments"] == [
        {"name": "demo", "alive": ["decode-0.0"], "orphaned": [], "leftover": [], "holder": None}
    ]
    assert ask(node, deployments=True, node="n2")["deployments"][0]["alive"] == []  # on a shared disk
