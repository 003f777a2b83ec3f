#!/usr/bin/env bash
# Makes .venv-ansible: Ansible as ansible/requirements.txt pins it, with the collection of this
# checkout linked in. Does nothing when everything is there.
#
#   scripts/ansible.sh use|test      `test` includes `use`, and adds what checks the collection: the
#                                    linter and, as root, the Debian packages of the fleet's test
#
# PYTHON=...      the interpreter to make it with (3.11 or newer)
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/say.sh
. scripts/say.sh

level=${1:-}
case $level in
  use) stamps=(use test) pins=(ansible/requirements.txt) ;;
  test) stamps=(test) pins=(ansible/requirements.txt ansible/tests/requirements.txt) ;;
  *) die 2 "usage: scripts/ansible.sh use|test" ;;
esac
home=.venv-ansible

# What it depends on: a changed version, a moved checkout, another interpreter.
fingerprint() {
  { cat ansible/{,tests/}requirements.txt && pwd && "$home/bin/python" -VV; } | sha256sum | cut -c1-16
}

is_ready() {
  [ -x "$home/bin/python" ] || return 1
  local stamp
  for stamp in "${stamps[@]}"; do
    if [ "$(cat "$home/.mqtick-$stamp" 2>/dev/null)" = "$(fingerprint)" ]; then return 0; fi
  done
  return 1
}

install_ansible() {
  local python=${PYTHON:-python3}
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    die 1 "Ansible needs Python 3.11 or newer, and $python is" \
      "$("$python" --version 2>&1 || true). Name one with PYTHON=/path/to/python3."
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    die 1 "$python cannot make virtual environments: run 'sudo apt-get install python3-venv'," \
      "then the same command again."
  say "installing Ansible into $home"
  # Made afresh each time: a half-made or older one is not worth repairing.
  "$python" -m venv --clear "$home"
  "$home/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    "${pins[@]/#/--requirement=}" ||
    die 1 "pip could not install Ansible (see its output above). Without a network, point pip at a" \
    "folder of wheels with PIP_FIND_LINKS and PIP_NO_INDEX; then run the same command again."
  mkdir -p "$home/collections/ansible_collections/mqtick"
  ln -s "$PWD/ansible" "$home/collections/ansible_collections/mqtick/fleet"
  fingerprint >"$home/.mqtick-$level"
}

missing_packages() {
  command -v ssh >/dev/null || echo openssh-client
  # makes the broker's certificate
  command -v openssl >/dev/null || echo openssl
  if [ "$level" = use ]; then return; fi
  # make the hosts of the fleet's test
  command -v debootstrap >/dev/null || echo debootstrap
  command -v systemd-nspawn >/dev/null || echo systemd-container
  # its promtool judges the alert rules
  command -v promtool >/dev/null || echo prometheus
}

if ! is_ready; then install_ansible; fi

mapfile -t missing < <(missing_packages)
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    say "installing the Debian packages ${missing[*]}"
    scripts/debian.sh install "${missing[@]}"
  else
    say "still missing here: ${missing[*]}. As root:" \
      "apt-get install --no-install-recommends ${missing[*]}"
  fi
fi
