#!/usr/bin/env bash
# Makes .venv-drivers: oscilloscope drivers by other authors (pymeasure, QCoDeS, tm_devices), and
# allantools. The slow tests let them read our simulated instruments and compute what we
# compute, so that ours do not merely agree with each other. An environment of its own, because
# nothing of ours needs them.
# Does nothing when everything is there.
#
#   scripts/drivers.sh
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/say.sh
. scripts/say.sh

if [ $# -gt 0 ]; then die 2 "usage: scripts/drivers.sh"; fi
pins=lab/tests/foreign/requirements.txt
home=.venv-drivers

# What it depends on: a changed version, a moved checkout, another interpreter.
fingerprint() { { cat "$pins" && pwd && "$home/bin/python" -VV; } | sha256sum | cut -c1-16; }

is_ready() {
  [ -x "$home/bin/python" ] && [ "$(cat "$home/.mqtick" 2>/dev/null)" = "$(fingerprint)" ]
}

if is_ready; then exit 0; fi
if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then scripts/setup.sh check; fi
say "installing other people's drivers into $home (290 MB; only tests use them)"
# Made afresh each time: a half-made or older one is not worth repairing. pip works on it from .venv.
.venv/bin/python -m venv --clear --without-pip "$home"
.venv/bin/python -m pip --python "$home/bin/python" install --quiet --disable-pip-version-check \
  --no-deps --no-compile --requirement "$pins" ||
  die 1 "pip could not install the drivers (see its output above). Without a network, point pip at" \
    "a folder of wheels with PIP_FIND_LINKS and PIP_NO_INDEX; then run the same command again. Without" \
    "them the tests that need them are skipped."
fingerprint >"$home/.mqtick"
