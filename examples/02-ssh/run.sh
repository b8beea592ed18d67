#!/bin/sh
# Serve a small model from two hosts, one for prefill and one for decode, ask it something, take it all down.
#
#   examples/02-ssh/run.sh PREFILL_HOST DECODE_HOST [QUESTION]
#
# Hosts as you type them after `ssh`. SSH_CONFIG names another SSH configuration than yours. KEEP=1 leaves the
# deployment running after the answer. Needs `pdctl` and `python3` on PATH here, and on the hosts what README.md says.
set -eu
cd "$(dirname "$0")/../.."

if [ $# -lt 2 ]; then
    echo "usage: $0 PREFILL_HOST DECODE_HOST [QUESTION]" >&2
    exit 2
fi
export PREFILL_HOST="$1" DECODE_HOST="$2"
shift 2

topology=examples/02-ssh/topology.yaml
deployment=ssh-1p1d

. examples/01-laptop/take_down.sh

say pdctl doctor "$topology"
pdctl doctor "$topology"

take_down_at_end

say pdctl up "$topology"
pdctl up "$topology"

router=$(pdctl status "$deployment" --json | python3 examples/02-ssh/endpoint.py)

say python3 examples/01-laptop/chat.py "$router" "$@"
python3 examples/01-laptop/chat.py "$router" "$@"
