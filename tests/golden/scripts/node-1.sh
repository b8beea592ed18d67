#!/usr/bin/env bash
# deepseek-v3-2p2d on node-1 (10.0.0.1)
#
#   node-1.sh start          start what runs on this node, in the background
#   node-1.sh stop           stop it, with all that came from it
#   node-1.sh status         say what runs, and whether it serves
#   node-1.sh run PROCESS    run one process in the foreground
#
# Written by `pdctl render`, plan 62a022dffa73. Logs and process ids lie in $RUN_DIR, by default beside
# this script. Start it on every node; the processes wait for each other.
#
# What single quotes hold is text, whatever it looks like:
# shellcheck disable=SC2016
set -euo pipefail

SCRIPT=$(readlink -f "${BASH_SOURCE[0]}")
RUN_DIR=${RUN_DIR:-${SCRIPT%.sh}.run}

GRACE_S=10  # between TERM and KILL
PROCESSES=(prefill-0.0 router-0.0)  # in start order

# prefill-0.0: http 30000, bootstrap 8998, dist-init 20000, tokenizer 20001, detokenizer 20002, rpc
#   20003, scheduler-metrics 20004, scheduler 20005, loads 20006, handshake 20013; devices 0-7
run_prefill_0_0() {
  export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
  export GLOO_SOCKET_IFNAME=eth0
  export NCCL_SOCKET_IFNAME=eth0
  export SGLANG_HOST_IP=10.0.0.1
  exec python3 -m sglang.launch_server \
    --model-path deepseek-ai/DeepSeek-V3-0324 \
    --host 10.0.0.1 \
    --port 30000 \
    --tp-size 16 \
    --ep-size 16 \
    --attn-dp-size 8 \
    --dist-init-addr 10.0.0.1:20000 \
    --nnodes 2 \
    --node-rank 0 \
    --disaggregation-mode prefill \
    --disaggregation-transfer-backend mooncake \
    --disaggregation-bootstrap-port 8998 \
    --disaggregation-ib-device mlx5_0,mlx5_1,mlx5_2,mlx5_3 \
    --trust-remote-code \
    --moe-a2a-backend deepep \
    --mem-fraction-static 0.8
}

# router-0.0: http 8000, metrics 18000
run_router_0_0() {
  exec python3 -m sglang_router.launch_router \
    --pd-disaggregation \
    --host 10.0.0.1 \
    --port 8000 \
    --prometheus-host 10.0.0.1 \
    --prometheus-port 18000 \
    --prefill http://10.0.0.1:30000 8998 \
    --decode http://10.0.0.3:30100 \
    --health-check-interval-secs 5 \
    --health-check-timeout-secs 25
}

# Once, before anything starts.
prepare() {
  :
}

# What answers 200 once a process serves. Followers on other nodes of an instance have nothing.
ready_url() {
  case $1 in
    prefill-0.0) echo http://10.0.0.1:30000/health ;;
    router-0.0) echo http://10.0.0.1:8000/readiness ;;
    *) ;;
  esac
}

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
    printf '%s\n%s\n' "$pid" "$(since "$pid")" > "$RUN_DIR/$process.pid"
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
