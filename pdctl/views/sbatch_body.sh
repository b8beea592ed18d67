# --- How they are run. Nothing from here on is about this deployment. --------------------------------------

JOB=()                # of each node
declare -A PID=()     # of the srun that a process's step belongs to
declare -A URL=()     # that answers 200 once a process serves
declare -A BEGAN=()   # seconds of this script's own clock
declare -A GRACE_S=() # between TERM and KILL
declare -A DEADLINE_S=() # from its start until it serves
CAUSE=failed          # why the job ends, in a word
REASON=               # and in a sentence
CODE=0                # of a process that has ended
IS_SERVING=0

say() {
  printf '%(%H:%M:%S)T %s\n' -1 "$*"
}

give_up() {
  REASON=$1
  say "$1" >&2
  exit "${2:-1}"
}

# The nodes of the allocation in Slurm's order, each with its component of a job of several shapes (`hetjob`),
# and with the address that Slurm reaches it by. One in IPv6 would need brackets in some words and none in
# others: the name stands for it.
find_nodes() {
  local group variable nodelist name address number
  local -A found=() job_of=()
  local names=() nodelists=("$SLURM_JOB_NODELIST") jobs=("$SLURM_JOB_ID")
  for ((group = 0; group < ${SLURM_HET_SIZE:-0}; group++)); do
    variable=SLURM_JOB_NODELIST_HET_GROUP_$group nodelists[group]=${!variable}
    variable=SLURM_JOB_ID_HET_GROUP_$group jobs[group]=${!variable}
  done
  for group in "${!nodelists[@]}"; do
    nodelist=${nodelists[group]}
    for name in $(scontrol show hostnames "$nodelist"); do
      names+=("$name") job_of[$name]=${jobs[group]}
    done
    while read -r name address; do
      [[ $address == *:* ]] || found[$name]=$address
    done < <(scontrol --oneliner show node "$nodelist" |
      sed -n 's/^NodeName=\([^ ]*\) .*NodeAddr=\([^ ]*\).*/\1 \2/p')
  done
  ((${#NODE[@]})) || NODE=("${names[@]}")
  ((${#NODE[@]} >= NUM_NODES)) || give_up "the job has ${#NODE[@]} nodes, the plan needs $NUM_NODES"
  for number in "${!NODE[@]}"; do
    name=${NODE[number]}
    JOB[number]=${job_of[$name]:-}
    [[ -n ${JOB[number]} ]] || give_up "the job has no node $name, which the plan names"
    ADDRESS[number]=${ADDRESS[number]:-${found[$name]:-$name}}
  done
  JOBS=$(IFS=, && echo "${jobs[*]}")
}

# What Slurm says of the job, srun would take for options of its steps.
forget_job() {
  local name
  for name in "${!SLURM_@}"; do
    [[ $name == SLURM_CONF* ]] || unset "$name"
  done
}

# TEXT as JSON.
json_text() {
  local text=$1 code char escape
  text=${text//\\/\\\\}
  text=${text//\"/\\\"}
  if [[ $text == *[[:cntrl:]]* ]]; then
    for code in {1..31}; do
      printf -v escape '\\u%04x' "$code"
      printf -v char '%b' "\\x${escape: -2}"
      text=${text//"$char"/"$escape"}
    done
  fi
  printf '"%s"' "$text"
}

# What the shim is told of PROCESS. Reads the variables that the function of that process has set.
spec() {
  local word separator=''
  printf '{"format": 1, "deployment": "%s", "process_id": "%s", "node": ' "$DEPLOYMENT" "$1"
  json_text "${NODE[node]}"
  printf ', "grace_s": %s, "argv": [' "$grace_s"
  for word in "${argv[@]}"; do
    printf '%s' "$separator"
    json_text "$word"
    separator=', '
  done
  separator=''
  printf '], "env": {'
  for word in ${environment[@]+"${environment[@]}"}; do
    printf '%s' "$separator"
    json_text "${word%%=*}"
    printf ': '
    json_text "${word#*=}"
    separator=', '
  done
  printf '}}\n'
}

# Once on the node of each PROCESS, before anything starts; on all nodes at a time.
prepare() {
  local process node grace_s url deadline_s argv environment preparation
  local -A step=()
  for process; do
    environment=()
    "plan_${process//[^A-Za-z0-9]/_}"
    say "on ${NODE[node]}: ${preparation[*]}"
    srun --jobid="${JOB[node]}" --nodelist="${NODE[node]}" --job-name="prepare-$process" \
      "${STEP_OPTIONS[@]}" ${LAUNCHER[@]+"${LAUNCHER[@]}"} \
      env ${environment[@]+"${environment[@]}"} "${preparation[@]}" \
      < /dev/null > "$RUN_DIR/steps/prepare-$process.out" 2>&1 &
    step[$process]=$!
  done
  for process; do
    if ! wait "${step[$process]}"; then
      tail -n 20 "$RUN_DIR/steps/prepare-$process.out" >&2
      give_up "the node of $process could not be prepared"
    fi
  done
}

# A step of its own for PROCESS: it lives as long as the process does, and ends with its exit code.
start() {
  local process=$1 node grace_s url='' deadline_s=0 argv=() environment=() preparation=()
  "plan_${process//[^A-Za-z0-9]/_}"
  spec "$process" > "$RUN_DIR/steps/$process.json"
  srun --jobid="${JOB[node]}" --nodelist="${NODE[node]}" --job-name="$process" "${STEP_OPTIONS[@]}" \
    ${LAUNCHER[@]+"${LAUNCHER[@]}"} "$PYTHON" -I -S "$SHIM" hold "$RUN_ROOT" "$DEPLOYMENT" "$process" \
    < "$RUN_DIR/steps/$process.json" > "$RUN_DIR/steps/$process.out" 2>&1 &
  PID[$process]=$! URL[$process]=$url BEGAN[$process]=$SECONDS GRACE_S[$process]=${grace_s%.*}
  DEADLINE_S[$process]=${deadline_s%.*}
  say "$process starts on ${NODE[node]}, output in $RUN_ROOT/$DEPLOYMENT/$process"
}

is_alive() {
  kill -0 "${PID[$1]}" 2> /dev/null
}

# Sets CODE to what the srun of a process that has ended gave. Not in a subshell: only a parent can know.
learn_code() {
  CODE=0
  wait "${PID[$1]}" || CODE=$?
}

# The job lives as long as all of its processes do.
require_alive() {
  local process
  for process in "${!PID[@]}"; do
    is_alive "$process" && continue
    learn_code "$process"
    tail -n 20 "$RUN_DIR/steps/$process.out" "$RUN_ROOT/$DEPLOYMENT/$process"/*/output.log >&2 || true
    give_up "$process ended with $CODE" "$((CODE ? CODE : 1))"
  done
}

# One HTTP status for each PROCESS, null where nothing answers, all asked at once from this node.
statuses() {
  local process requests='' separator=''
  for process; do
    requests+="$separator{\"url\": $(json_text "${URL[$process]}"), \"timeout_s\": $PROBE_TIMEOUT_S}"
    separator=', '
  done
  # A body in the answer has its quotes escaped: only the field itself looks like this.
  "$PYTHON" -I -S "$SHIM" probe <<< "{\"requests\": [$requests]}" |
    grep -o '"status": [^,]*' | cut -d ' ' -f 2
}

# Until each PROCESS serves.
await_ready() {
  local waiting=("$@") found=() number process
  while ((${#waiting[@]})); do
    require_alive
    mapfile -t found < <(statuses "${waiting[@]}")
    for number in "${!waiting[@]}"; do
      process=${waiting[number]}
      if [[ ${found[number]:-null} == 200 ]]; then
        say "$process serves after $((SECONDS - BEGAN[$process])) s"
        unset "waiting[number]"
      elif ((SECONDS - BEGAN[$process] > DEADLINE_S[$process])); then
        give_up "$process doesn't serve after ${DEADLINE_S[$process]} s"
      fi
    done
    waiting=(${waiting[@]+"${waiting[@]}"})
    ((${#waiting[@]} == 0)) || sleep 1
  done
}

# TERM to the steps of each PROCESS. Never to its srun, which would have the tasks killed at once. What became
# of it, `stop` sees for itself: scancel also fails over a step that ends meanwhile.
signal_steps() {
  local listed step name steps=()
  listed=$(squeue --noheader --steps --jobs="$JOBS" --format='%i %j') || return 0
  while read -r step name; do
    [[ " $* " != *" $name "* ]] || steps+=("$step")
  done <<< "$listed"
  ((${#steps[@]} == 0)) || scancel --signal=TERM "${steps[@]}" 2> /dev/null || true
}

# Each PROCESS, within its grace. Asked again after a while: the controller may not have answered, and a step
# may have been on its way.
stop() {
  local process living=("$@") longest_s=0 until ask_at=$SECONDS
  for process; do
    ((longest_s >= GRACE_S[$process])) || longest_s=${GRACE_S[$process]}
  done
  until=$((SECONDS + longest_s + AFTER_GRACE_S))
  while :; do
    living=()
    for process; do
      ! is_alive "$process" || living+=("$process")
    done
    ((${#living[@]})) || return 0
    if ((SECONDS > until)); then
      say "these don't end, and are killed: ${living[*]}" >&2
      for process in "${living[@]}"; do kill -TERM "${PID[$process]}" || true; done
      return 0
    fi
    if ((SECONDS >= ask_at)); then
      signal_steps "${living[@]}"
      ask_at=$((SECONDS + 3))
    fi
    sleep 0.2
  done
}

# The router first, so that what it has accepted is answered; then all engines at once.
stop_all() {
  local process routers=() engines=()
  for process in "${!PID[@]}"; do
    if [[ $process == router-* ]]; then routers+=("$process"); else engines+=("$process"); fi
  done
  stop ${routers[@]+"${routers[@]}"}
  stop ${engines[@]+"${engines[@]}"}
}

# Slurm forgets a job minutes after its end.
write_exit() {
  local process separator=''
  {
    printf '{"job_id": %s, "generation": %s, "cause": "%s", "reason": ' "$JOB_ID" "$GENERATION" "$CAUSE"
    json_text "$REASON"
    printf ', "at": %s, "code": %s, "processes": {' "$(date +%s)" "$1"
    for process in "${!PID[@]}"; do
      if is_alive "$process"; then CODE=null; else learn_code "$process"; fi
      printf '%s"%s": %s' "$separator" "$process" "$CODE"
      separator=', '
    done
    printf '}}\n'
  } > "$RUN_DIR/exit.json.new"
  mv "$RUN_DIR/exit.json.new" "$RUN_DIR/exit.json"
}

# TERM comes ahead of the time limit, by `--signal`, before a preemption, and from scancel.
asked_to_end() {
  local job limit=''
  trap '' TERM INT
  CAUSE=cancelled REASON='it was asked to end'
  job=$(scontrol --oneliner show job "$JOB_ID") || job=''
  [[ ! $job =~ \ EndTime=([^ ]+) ]] || limit=$(date --date="${BASH_REMATCH[1]}" +%s) || limit=''
  if [[ $job =~ \ PreemptTime=[0-9] ]]; then
    CAUSE=preempted REASON='the job is preempted'
  elif [[ $job == *' JobState=RUNNING '* && -n $limit ]] && ((limit - $(date +%s) < SIGNAL_LEAD_S + 60)); then
    CAUSE=timeout REASON='the time limit of the job is near'
  fi
  say "$REASON"
  exit "$((IS_SERVING ? 0 : 143))"
}

at_exit() {
  local code=$?
  trap '' TERM INT
  set +e
  stop_all
  write_exit "$code"
  say "$DEPLOYMENT ended: ${REASON:-a command of this script failed}"
  exit "$code"
}

main() {
  JOB_ID=$SLURM_JOB_ID GENERATION=${SLURM_RESTART_COUNT:-0}
  umask 077
  mkdir -p "$RUN_DIR/steps"
  write_shim > "$SHIM"
  find_nodes
  forget_job
  trap at_exit EXIT
  trap asked_to_end TERM INT
  bring_up
  IS_SERVING=1
  say "$DEPLOYMENT serves at $(endpoint)"
  endpoint > "$RUN_DIR/endpoint"
  while :; do
    require_alive
    sleep 2
  done
}
