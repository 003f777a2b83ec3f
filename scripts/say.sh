# shellcheck shell=bash
# How the scripts talk: one sentence a line, wrapped by nobody, errors on standard error.

say() { printf 'mqtick: %s\n' "$*"; }

warn() { printf 'mqtick: %s\n' "$*" >&2; }

# die STATUS SENTENCE... : 1 = it failed, 2 = it was called the wrong way
die() {
  local status=$1
  shift
  warn "$*"
  exit "$status"
}
