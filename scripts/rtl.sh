#!/usr/bin/env bash
# Makes .venv-rtl: what simulates, builds and proves the hardware broker, in the versions of
# broker/rtl/requirements.txt. An environment of its own, because who only wants time needs none.
# Needs a C++ compiler and make beside it (Debian: build-essential).
# Does nothing when everything is there.
#
#   scripts/rtl.sh
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/say.sh
. scripts/say.sh

if [ $# -gt 0 ]; then die 2 "usage: scripts/rtl.sh"; fi
pins=broker/rtl/requirements.txt
home=.venv-rtl

# What it depends on: a changed version, a moved checkout, another interpreter.
fingerprint() { { cat "$pins" && pwd && "$home/bin/python" -VV; } | sha256sum | cut -c1-16; }

is_ready() {
  [ -x "$home/bin/python" ] && [ "$(cat "$home/.mqtick" 2>/dev/null)" = "$(fingerprint)" ]
}

if ! command -v c++ >/dev/null || ! command -v make >/dev/null; then
  if [ "$(id -u)" -ne 0 ]; then
    die 1 "Simulating the hardware broker needs a C++ compiler and make: run" \
      "'sudo apt-get install build-essential', then the same command again."
  fi
  scripts/debian.sh install build-essential
fi
if is_ready; then exit 0; fi
if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then scripts/setup.sh check; fi
say "installing the tools of the hardware broker into $home (600 MB)"
# Made afresh each time: a half-made or older one is not worth repairing. pip works on it from .venv.
.venv/bin/python -m venv --clear --without-pip "$home"
.venv/bin/python -m pip --python "$home/bin/python" install --quiet --disable-pip-version-check \
  --no-deps --requirement "$pins" ||
  die 1 "pip could not install the tools (see its output above). Without a network, point pip at" \
    "a folder of wheels with PIP_FIND_LINKS and PIP_NO_INDEX; then run the same command again."
fingerprint >"$home/.mqtick"
