#!/bin/sh
# Way 3: a batch script that needs no pdctl where it runs. It is written here, read by you, submitted by anybody.
#
#   examples/03-slurm/3-rendered.sh [FOLDER]
#
# FOLDER must be shared by the nodes; the script, its output and the job's records go there.
set -eu
cd "$(dirname "$0")/../.."
folder=${1:-.}

pdctl render examples/03-slurm/topology.yaml --as sbatch --output "$folder"
cd "$folder"
job=$(sbatch --parsable slurm-2p2d.sbatch)
echo "submitted job $job; to end it: scancel --batch -s TERM $job"

endpoint=slurm-2p2d-$job.0/endpoint
until [ -f "$endpoint" ]; do
    if [ -z "$(squeue --noheader --jobs="$job" --states=PENDING,CONFIGURING,RUNNING)" ]; then
        cat "slurm-$job.out" >&2
        exit 1
    fi
    sleep 2
done
echo "serves at $(cat "$endpoint")"
