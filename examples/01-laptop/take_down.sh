# After `take_down_at_end` whatever ends the script also ends `$deployment`, unless it succeeds and KEEP=1 is set.
# shellcheck shell=sh disable=SC2154 # the script that reads this says which deployment

say() { printf '\n$ %s\n' "$*"; }

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

take_down_at_end() {
    trap finish EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
}
