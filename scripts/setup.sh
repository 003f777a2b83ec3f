#!/usr/bin/env bash
# Sets this checkout up: the Python parts in .venv and, for the demo and the tests, Debian's programs.
# Does nothing when everything is there.
#
#   scripts/setup.sh demo     what `make demo` needs: a broker and chronyd
#                    test     and the fast tests: nats-server, sigrok-cli, pdftotext, sshd, tshark
#                    slow     and the slow ones: Chromium
#                    check    the Python parts of all of these and of `make check`; no programs
#
# PYTHON=...              the interpreter to make .venv with (3.11 or newer)
# MQTICK_PACKAGES=...     install: as Debian packages (root or sudo); unpack: below .venv/debian,
#                         nothing is installed; none: neither. Default: install if it can be done
#                         without removing anything, else unpack.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/env.sh
. scripts/env.sh
# shellcheck source=scripts/say.sh
. scripts/say.sh

level=${1:-}
case $level in
  demo) extra='[lab,analysis]' stamps=(demo test slow check) ;;
  test | slow) extra='[test]' stamps=(test slow check) ;;
  check) extra='[dev]' stamps=(check) ;;
  *) die 2 "usage: scripts/setup.sh demo|test|slow|check" ;;
esac

# ---- Python -------------------------------------------------------------------------------------
find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  die 1 "no Python 3.11 or newer was found (python3 is $(python3 --version 2>&1 || true))." \
    "Name one with PYTHON=/path/to/python3, or use Debian 12 or newer."
}

# What the installed parts depend on: a changed version, a moved checkout, another interpreter.
fingerprint() {
  { cat pyproject.toml constraints.txt && pwd && .venv/bin/python -VV; } | sha256sum | cut -c1-16
}

python_is_ready() {
  [ -x .venv/bin/python ] || return 1
  local now stamp
  now=$(fingerprint 2>/dev/null) || return 1
  for stamp in "${stamps[@]}"; do
    if [ "$(cat ".venv/.mqtick-$stamp" 2>/dev/null)" = "$now" ]; then return 0; fi
  done
  return 1
}

install_python_parts() {
  local python
  if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
      die 1 "$python cannot make virtual environments: run 'sudo apt-get install python3-venv'," \
        "then the same command again."
    fi
    say "making .venv with $("$python" --version)"
    "$python" -m venv .venv
  fi
  say "installing the Python parts ($level) into .venv"
  # The build's own environment obeys these variables, not -c. As an address, so that a path with
  # a space stays one word.
  PIP_CONSTRAINT=$(.venv/bin/python -c \
    'import pathlib; print(pathlib.Path("constraints.txt").resolve().as_uri())')
  PIP_BUILD_CONSTRAINT=$PIP_CONSTRAINT
  export PIP_CONSTRAINT PIP_BUILD_CONSTRAINT
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
    -e ".$extra" ||
    die 1 "pip could not install the Python parts (see its output above). Without a network, point" \
      "pip at a folder of wheels with PIP_FIND_LINKS and PIP_NO_INDEX; then run the same command again."
  fingerprint >".venv/.mqtick-$level"
}

# The broker from Python packages: slower and less punctual than Mosquitto, but it needs no privileges.
install_amqtt() {
  say "Mosquitto is missing: installing amqtt, a broker from Python packages, into .venv"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
    -e ".[demo]" || warn "installing amqtt failed."
}

# ---- Debian's programs --------------------------------------------------------------------------
missing_packages() {
  command -v mosquitto >/dev/null || echo mosquitto
  if ! command -v chronyd >/dev/null || ! command -v chronyc >/dev/null; then echo chrony; fi
  if [ "$level" = demo ]; then return; fi
  # a logic analyser's program with a demo device, and another make of broker
  command -v sigrok-cli >/dev/null || echo sigrok-cli
  command -v nats-server >/dev/null || echo nats-server
  # clients of other authors, for our broker
  command -v mosquitto_sub >/dev/null || echo mosquitto-clients
  # a decoder of other authors, for what we send
  command -v tshark >/dev/null || echo tshark
  # what looks at the PDF of reports
  command -v pdftotext >/dev/null || echo poppler-utils
  # another machine for mqtick-load, on loopback: only ever unpacked
  command -v sshd >/dev/null || echo openssh-server
  if [ "$level" = test ]; then return; fi
  # what looks at their pages
  command -v chromium >/dev/null || echo chromium
  command -v chromedriver >/dev/null || echo chromium-driver
}

# Empty when root, "sudo" (it may ask for a password on a terminal), or nothing at all: status 1.
find_root() {
  if [ "$(id -u)" -eq 0 ]; then return 0; fi
  if ! command -v sudo >/dev/null; then return 1; fi
  if sudo -n true 2>/dev/null || { [ -t 0 ] && [ -t 2 ]; }; then
    echo sudo
    return 0
  fi
  return 1
}

bring_packages() {
  local package removed root status install=() unpack=()
  local way=${MQTICK_PACKAGES:-auto}
  if ! command -v apt-get >/dev/null; then
    warn "there is no apt-get here: install $* with this system's package manager."
    return
  fi
  if [ "$way" = auto ] || [ "$way" = install ]; then
    if root=$(find_root); then
      for package in "$@"; do
        # No test puts a door into a machine.
        if [ "$package" = openssh-server ]; then
          unpack+=("$package")
          continue
        fi
        removed=$(scripts/debian.sh removes "$package" | paste -sd' ')
        if [ -n "$removed" ]; then
          say "installing $package would remove $removed from this machine, so it is not installed."
          unpack+=("$package")
        else
          install+=("$package")
        fi
      done
    else
      say "no root and no sudo, so $* cannot be installed."
      unpack=("$@")
    fi
  elif [ "$way" = unpack ]; then
    unpack=("$@")
  else
    return
  fi
  if [ ${#install[@]} -gt 0 ]; then
    say "installing the Debian packages ${install[*]}${root:+ with $root}; their services stay off."
    say "(MQTICK_PACKAGES=unpack puts them below .venv instead.)"
    $root scripts/debian.sh install "${install[@]}" || {
      status=$?
      if [ "$status" -ge 128 ]; then exit "$status"; fi # Ctrl-C
      warn "installing ${install[*]} failed."
      unpack+=("${install[@]}")
    }
  fi
  if [ ${#unpack[@]} -gt 0 ]; then
    say "unpacking ${unpack[*]} below .venv/debian; the system does not change."
    scripts/debian.sh unpack "${unpack[@]}" || warn "unpacking ${unpack[*]} failed."
  fi
}

# Debian's AppArmor profile keeps /usr/sbin/chronyd from reading a configuration outside
# /etc/chrony. It goes by the path, so the tests use a copy.
copy_confined_chronyd() {
  local original=/usr/sbin/chronyd copy=.venv/debian/usr/sbin/chronyd
  if [ "$(cat /sys/module/apparmor/parameters/enabled 2>/dev/null)" = Y ] &&
    [ -e /etc/apparmor.d/usr.sbin.chronyd ] && [ -x $original ] && ! cmp -s $original $copy; then
    say "copying chronyd into .venv/debian: AppArmor lets /usr/sbin/chronyd read only /etc/chrony."
    install -D -m 755 $original $copy
  fi
}

# -------------------------------------------------------------------------------------------------
python_is_ready || install_python_parts

if [ "$level" != check ]; then
  mapfile -t missing < <(missing_packages)
  if [ ${#missing[@]} -gt 0 ]; then
    bring_packages "${missing[@]}"
    hash -r
    mapfile -t missing < <(missing_packages)
  fi
  copy_confined_chronyd
  if ! command -v mosquitto >/dev/null && [ ! -x .venv/bin/amqtt ]; then install_amqtt; fi
  if [ ${#missing[@]} -gt 0 ]; then
    warn "still missing: ${missing[*]}. What needs them is skipped, and says so. To install them:" \
      "sudo apt-get install --no-install-recommends ${missing[*]}"
  fi
fi
