"""A launch plan as shell scripts, one for each node: to read, or to run by hand where pdctl may not.

The scripts need bash, setsid and ps; `status` also asks curl where there is one. What they leave to people is
what `up` does across nodes: order, waiting, and looking at the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pdctl.plan.model import LaunchPlan, PlanNode, ProcessSpec
from pdctl.views.command import flag_groups, quoted
from pdctl.views.plan import index_ranges, port_list

_WIDTH = 100


def shell_scripts(plan: LaunchPlan) -> dict[str, str]:
    """File name to content."""
    return {
        f"{node.name}.sh": _script(plan, node, processes)
        for node in plan.nodes
        if (processes := tuple(each for each in plan.processes if each.node == node.name))
    }


def _script(plan: LaunchPlan, node: PlanNode, processes: Sequence[ProcessSpec]) -> str:
    blocks = (
        _HEAD.format(
            name=plan.name,
            node=node.name if node.address == node.name else f"{node.name} ({node.address})",
            file=f"{node.name}.sh",
            digest=plan.digest[:12],
        ),
        _settings(processes),
        *(_run(process) for process in processes),
        _preparation(processes),
        _probes(processes),
        _BODY,
    )
    return "\n".join(blocks)


def _settings(processes: Sequence[ProcessSpec]) -> str:
    ids = " ".join(quoted(process.id) for process in processes)
    grace_s = max(1, round(max(process.grace_s for process in processes)))
    return f"GRACE_S={grace_s}  # between TERM and KILL\nPROCESSES=({ids})  # in start order\n"


def _run(process: ProcessSpec) -> str:
    """A function that becomes the process."""
    facts = [port_list(process)] if process.ports else []
    if process.device_indices:
        facts.append(f"devices {index_ranges(process.device_indices)}")
    lines = [*comment(f"{process.id}: {'; '.join(facts)}"), f"{function_name(process.id)}() {{"]
    # Assigned and exported in one word: the value is text, no command whose failure could be hidden.
    lines += [f"  export {name}={quoted(value)}" for name, value in sorted(process.env.items())]
    first, *rest = flag_groups(process.argv)
    lines += _continued([f"  exec {first}", *(f"    {group}" for group in rest)])
    return "\n".join([*lines, "}", ""])


def _preparation(processes: Sequence[ProcessSpec]) -> str:
    commands = dict.fromkeys(process.prepare for process in processes if process.prepare)
    lines = [f"  {' '.join(quoted(word) for word in argv)}" for argv in commands] or ["  :"]
    return "\n".join(["# Once, before anything starts.", "prepare() {", *lines, "}", ""])


def _probes(processes: Sequence[ProcessSpec]) -> str:
    cases = [
        f"    {quoted(each.id)}) echo {quoted(each.ready.url)} ;;"
        for each in processes
        if each.ready is not None
    ]
    head = ["# What answers 200 once a process serves. Followers on other nodes of an instance have nothing."]
    return "\n".join([*head, "ready_url() {", "  case $1 in", *cases, "    *) ;;", "  esac", "}", ""])


def function_name(process_id: str, *, verb: str = "run") -> str:
    return f"{verb}_{re.sub(r'[^A-Za-z0-9]', '_', process_id)}"


def _continued(lines: Sequence[str]) -> Iterator[str]:
    for index, line in enumerate(lines):
        yield f"{line} \\" if index < len(lines) - 1 else line


def comment(text: str) -> Iterator[str]:
    """As many comment lines as `text` needs."""
    line = "#"
    for word in text.split():
        if len(line) + 1 + len(word) > _WIDTH and line != "#":
            yield line
            line = "#  "
        line = f"{line} {word}"
    yield line


_HEAD = """\
#!/usr/bin/env bash
# {name} on {node}
#
#   {file} start          start what runs on this node, in the background
#   {file} stop           stop it, with all that came from it
#   {file} status         say what runs, and whether it serves
#   {file} run PROCESS    run one process in the foreground
#
# Written by `pdctl render`, plan {digest}. Logs and process ids lie in $RUN_DIR, by default beside
# this script. Start it on every node; the processes wait for each other.
#
# What single quotes hold is text, whatever it looks like:
# shellcheck disable=SC2016
set -euo pipefail

SCRIPT=$(readlink -f "${{BASH_SOURCE[0]}}")
RUN_DIR=${{RUN_DIR:-${{SCRIPT%.sh}}.run}}
"""

_BODY = """\
# When a process began, by its id; nothing where there is none.
since() {
  local moment
  read -r moment < <(ps -o lstart= -p "$1") || true
  echo "$moment"
}

# The process id that `start` noted, while anything of its session lives. A later process that was given
# the same id began at another moment.
running() {
  local pid moment now
  [[ -f $RUN_DIR/$1.pid ]] || return 1
  { read -r pid && read -r moment; } < "$RUN_DIR/$1.pid" || return 1
  now=$(since "$pid")
  [[ -z $now || $now == "$moment" ]] && kill -0 -- "-$pid" 2> /dev/null && echo "$pid"
}

start() {
  local process pid
  mkdir -p "$RUN_DIR"
  prepare
  for process in "${PROCESSES[@]}"; do
    if pid=$(running "$process"); then
      echo "$process runs already, process $pid"
      continue
    fi
    # A session of its own: `stop` reaches all that it starts, and it outlives this terminal.
    setsid bash "$SCRIPT" run "$process" > "$RUN_DIR/$process.log" 2>&1 < /dev/null &
    pid=$!
    printf '%s\\n%s\\n' "$pid" "$(since "$pid")" > "$RUN_DIR/$process.pid"
    echo "$process started, process $pid, output in $RUN_DIR/$process.log"
  done
}

stop() {
  local index process pid until
  for ((index = ${#PROCESSES[@]} - 1; index >= 0; index--)); do
    process=${PROCESSES[index]}
    if ! pid=$(running "$process"); then
      echo "$process doesn't run"
      continue
    fi
    kill -TERM -- "-$pid" || true
    until=$((SECONDS + GRACE_S))
    while running "$process" > /dev/null && ((SECONDS < until)); do sleep 0.2; done
    if running "$process" > /dev/null; then
      kill -KILL -- "-$pid" || true
    fi
    rm -f "$RUN_DIR/$process.pid"
    echo "$process stopped"
  done
}

status() {
  local process pid url code=0
  for process in "${PROCESSES[@]}"; do
    if ! pid=$(running "$process"); then
      echo "$process doesn't run"
      code=1
      continue
    fi
    url=$(ready_url "$process")
    if [[ -z $url ]] || ! command -v curl > /dev/null; then
      echo "$process runs, process $pid"
    elif curl -fsS -o /dev/null --max-time 30 "$url" 2> /dev/null; then
      echo "$process runs and serves, process $pid"
    else
      echo "$process runs but doesn't serve, process $pid"
      code=1
    fi
  done
  return "$code"
}

case ${1:-} in
  start | stop | status) "$1" ;;
  run) "run_${2//[^A-Za-z0-9]/_}" ;;
  *)
    echo "usage: $0 start|stop|status|run PROCESS" >&2
    exit 64
    ;;
esac
"""
