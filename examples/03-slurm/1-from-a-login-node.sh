#!/bin/sh
# Way 1: pdctl submits the job. `up` waits until it serves, and the job goes on without this terminal.
#
#   examples/03-slurm/1-from-a-login-node.sh [QUESTION]
#
# KEEP=1 leaves the deployment running after the answer.
set -eu
cd "$(dirname "$0")/../.."

deployment=slurm-2p2d
. examples/01-laptop/take_down.sh
take_down_at_end

pdctl up examples/03-slurm/topology.yaml
router=$(pdctl status "$deployment" --json | python3 examples/02-ssh/endpoint.py)
python3 examples/01-laptop/chat.py "$router" "$@"
