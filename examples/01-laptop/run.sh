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

say() { printf '\n$ %s\n' "$*"; }

# Whatever ends this script also ends the deployment, unless the answer came and the user wants it to stay.
finish() {
    code=$?
    trap - EXIT
    trap '' INT TERM HUP # a second Ctrl-C must not leave half of it behind
    if [ "$code" -eq 0 ] && [ "${KEEP:-0}" = 1 ]; then
        printf '\nstill running; to end it: pdctl down %s\n' "$deployment"
        exit 0
    fi
    say pdctl down "$deployment"
    pdctl down "$deployment" || [ "$code" -ne 0 ] || code=1
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

say pdctl up "$topology"
pdctl up "$topology"

say pdctl status "$deployment"
pdctl status "$deployment"

say python3 examples/01-laptop/chat.py "$router" "$@"
python3 examples/01-laptop/chat.py "$router" "$@"
