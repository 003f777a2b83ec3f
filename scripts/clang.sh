#!/usr/bin/env bash
# Makes ready what builds the data plane in the kernel (broker/bpf): clang (14 is tried) and libbpf's headers.
# Does nothing when everything is there.
#
#   scripts/clang.sh
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/say.sh
. scripts/say.sh

if [ $# -gt 0 ]; then die 2 "usage: scripts/clang.sh"; fi

clang=$(command -v clang || command -v clang-14 || true)
if [ -n "$clang" ] && [ -e /usr/include/bpf/bpf_helpers.h ]; then exit 0; fi
if [ "$(id -u)" -ne 0 ]; then
  die 1 "Building the data plane in the kernel needs clang and libbpf's headers: run" \
    "'sudo apt-get install clang libbpf-dev', then the same command again."
fi
scripts/debian.sh install clang libbpf-dev
