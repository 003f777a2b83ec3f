# shellcheck shell=bash
# How the scripts talk: one message per line, not wrapped, errors on standard error.

say() { printf 'mqtick: %s\n' "$*"; }

warn() { printf 'mqtick: %s\n' "$*" >&2; }

# die STATUS SENTENCE... : 1 = it failed, 2 = it was called wrongly
die() {
  local status=$1
  shift
  warn "$*"
  exit "$status"
}
