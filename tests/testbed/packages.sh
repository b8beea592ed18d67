#!/bin/sh
# Installs the Debian packages that the tests start programs of. As root on a Debian system; elsewhere it says what is missing.
set -eu

# Hosts of their own on this machine and login shells to meet there (hosts/), what released SGLang on CPUs,
# Mooncake and NIXL load (sglang_cpu/), and Slurm (slurm/).
needed="iproute2 nftables openssh-client openssh-server procps tini fish tcsh zsh libcurl4 libibverbs1 libnuma1"
needed="$needed munge slurm-client slurmctld slurmd"

command -v dpkg-query >/dev/null || exit 0
missing=""
for package in $needed; do
  dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
  echo "tests of the SSH and Slurm executors and of SGLang want the Debian packages$missing" >&2
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086  # a list of words
apt-get install -y -qq --no-install-recommends $missing >/dev/null
