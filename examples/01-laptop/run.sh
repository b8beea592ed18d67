#!/bin/sh
# Serve a small model with one prefill and one decode server on this machine, ask it something, take it all down.
#
#   examples/01-laptop/run.sh [QUESTION]
#
# KEEP=1 leaves the deployment running after the answer. Needs `pdctl` and `python3` on PATH.
set -eu
cd "$(dirname "$0")/../.."

topology=topologies/laptop_1p1d.yaml
deployment=laptop-1p1d
router=http://127.0.0.1:8000

. examples/01-laptop/take_down.sh
take_down_at_end

say pdctl up "$topology"
pdctl up "$topology"

say pdctl status "$deployment"
pdctl status "$deployment"

say python3 examples/01-laptop/chat.py "$router" "$@"
python3 examples/01-laptop/chat.py "$router" "$@"
