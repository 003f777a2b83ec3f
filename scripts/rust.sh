#!/usr/bin/env bash
# Makes ready what builds the broker (broker/server): Rust, and Cargo.lock from crates.txt.
# Does nothing when everything is there.
#
#   scripts/rust.sh
#
# Takes the `cargo` that is there if it is new enough; as root, else, Debian's.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/say.sh
. scripts/say.sh

if [ $# -gt 0 ]; then die 2 "usage: scripts/rust.sh"; fi
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' broker/server/Cargo.toml)

is_ready() {
  local found
  command -v cargo >/dev/null && command -v cc >/dev/null || return 1
  found=$(cargo --version | cut -d' ' -f2)
  [ "$(printf '%s\n' "$wanted" "$found" | sort -V | head -n1)" = "$wanted" ]
}

if ! is_ready; then
  if [ "$(id -u)" -ne 0 ]; then
    die 1 "Building the broker needs Rust $wanted or newer and a C compiler: run" \
      "'sudo apt-get install cargo-web build-essential' (Debian 12 or 13), or use rustup; then the" \
      "same command again."
  fi
  scripts/debian.sh install cargo-web build-essential
  hash -r
  is_ready || die 1 "apt has no Rust $wanted or newer, only $(cargo --version 2>&1): Debian's comes with" \
    "its security updates, which this system does not take; or use rustup."
fi
python3 broker/server/crates.py
