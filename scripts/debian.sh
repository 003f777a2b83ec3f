#!/usr/bin/env bash
# Brings in Debian's programs (broker, chronyd) for the demo and the tests, without side effects.
#
#   debian.sh removes PACKAGE     prints the installed packages that installing it would remove
#   debian.sh install PACKAGE...  as root: installs, never removes, leaves all new services off
#   debian.sh unpack PACKAGE...   without root: unpacks below .venv/debian and installs nothing
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/say.sh
. scripts/say.sh

tree=$PWD/.venv/debian
policy=/usr/sbin/policy-rc.d
policy_aside=$policy.before-mqtick
policy_mark='# written by the set-up of mqtick for the time of one installation; safe to delete'

export DEBIAN_FRONTEND=noninteractive LC_ALL=C
options=(-qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120)

# A fresh container has no package lists. Root refreshes the system's; anybody else keeps a private
# copy of them below .venv/debian, which apt allows.
use_private_lists() {
  options+=(-o "Dir::State::lists=$tree/lists" -o "Dir::Cache=$tree/cache")
}
if [ -d "$tree/lists" ]; then use_private_lists; fi

known() { [[ $(apt-cache "${options[@]}" policy "$1") =~ Candidate:\ [^\(] ]]; }

refresh_lists() {
  local package
  for package in "$@"; do
    if known "$package"; then continue; fi
    say "fetching the package lists"
    if [ "$(id -u)" -ne 0 ] && [ ! -d "$tree/lists" ]; then
      mkdir -p "$tree/lists/partial" "$tree/cache/archives/partial"
      use_private_lists
    fi
    apt-get "${options[@]}" update >/dev/null || warn "apt-get update failed (see above)."
    known "$package" ||
      die 1 "apt knows no package $package, so it cannot be fetched. Is there a network?"
  done
}

simulate() { apt-get "${options[@]}" install --simulate --no-install-recommends "$@"; }

# the names of packages that an installation would add, not those it would bring up to date
would_add() { simulate "$@" | awk '$1 == "Inst" && $3 !~ /^\[/ { print $2 }'; }

would_remove() { simulate "$1" | awk '$1 == "Remv" { print $2 }'; }

# ---- install ------------------------------------------------------------------------------------
new_packages=()

leave_services_off() {
  local package unit
  for package in "${new_packages[@]}"; do
    # instances of templates (name@.service) do not exist yet
    for unit in $(dpkg -L "$package" 2>/dev/null |
      sed -nE 's,^(/usr)?/lib/systemd/system/([^/@]+\.(service|socket|timer|path))$,\2,p'); do
      switch_off "$unit"
    done
  done
}

switch_off() {
  if command -v systemctl >/dev/null; then
    systemctl disable "$1" >/dev/null 2>&1 || true
    if [ -d /run/systemd/system ]; then systemctl stop "$1" || true; fi
  elif [[ $1 = *.service ]] && [ -e "/etc/init.d/${1%.service}" ]; then
    update-rc.d "${1%.service}" disable >/dev/null 2>&1 || true
  fi
}

# While packages are installed, policy-rc.d forbids the start of any service. If this machine has one
# that already forbids it (containers), that one is enough; any other is put aside for that time.
forbid_starts() {
  local package answer=0
  allow_starts # an earlier run may have been killed
  if [ -x "$policy" ]; then
    for package in "$@"; do
      answer=0
      "$policy" "$package" start >/dev/null 2>&1 || answer=$?
      if [ "$answer" -ne 101 ]; then break; fi
    done
    if [ "$answer" -eq 101 ]; then return; fi
  fi
  if [ -e "$policy" ]; then mv "$policy" "$policy_aside"; fi
  printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" >"$policy"
  chmod 755 "$policy"
}

allow_starts() {
  if [ -e "$policy" ] && grep -qF "$policy_mark" "$policy"; then rm -f "$policy"; fi
  if [ -e "$policy_aside" ]; then mv "$policy_aside" "$policy"; fi
}

after_install() {
  local status=$?
  set +e
  trap '' INT TERM HUP
  leave_services_off
  allow_starts
  exit "$status"
}

install_packages() {
  [ "$(id -u)" -eq 0 ] || die 2 "debian.sh install needs root; debian.sh unpack does not."
  refresh_lists "$@"
  mapfile -t new_packages < <(would_add "$@")
  # also on Ctrl-C: what is half installed must not start at the next boot either
  trap after_install EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP
  forbid_starts "$@"
  apt-get "${options[@]}" install -y --no-install-recommends --no-remove \
    -o Dpkg::Options::=--force-confold "$@" >&2
}

# ---- unpack -------------------------------------------------------------------------------------
# One directory for all programs: wrappers that find the libraries that came along.
write_wrappers() {
  local libraries program place wrapper
  libraries=$(find "$tree/root" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
  for program in "$tree"/root/{usr/,}{bin,sbin}/*; do
    if [ ! -f "$program" ] || [ ! -x "$program" ]; then continue; fi
    place=usr/$(basename "$(dirname "$program")")
    wrapper=$tree/$place/$(basename "$program")
    mkdir -p "$tree/$place"
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%q\nexport LD_LIBRARY_PATH\nexec %q "%s"\n' \
      "$libraries" "$program" '$@' >"$wrapper"
    chmod 755 "$wrapper"
  done
}

unpack_packages() {
  local wanted archive
  mkdir -p "$tree/root" "$tree/archives"
  refresh_lists "$@"
  # with the libraries that are not here yet; when apt cannot solve that, the package alone
  mapfile -t wanted < <(would_add "$@" 2>/dev/null || true)
  [ ${#wanted[@]} -gt 0 ] || wanted=("$@")
  (cd "$tree/archives" && apt-get "${options[@]}" -o APT::Sandbox::User=root download "${wanted[@]}" >/dev/null) ||
    die 1 "apt-get download ${wanted[*]} failed (see its output above). Is there a network?"
  for archive in "$tree"/archives/*.deb; do
    dpkg -x "$archive" "$tree/root"
    rm -f "$archive"
  done
  write_wrappers
  rm -rf "$tree/archives" "$tree/lists" "$tree/cache"
}

command=${1:-}
[ $# -ge 2 ] || die 2 "usage: debian.sh removes|install|unpack PACKAGE..."
shift
case $command in
  removes) refresh_lists "$@" && would_remove "$1" ;;
  install) install_packages "$@" ;;
  unpack) unpack_packages "$@" ;;
  *) die 2 "debian.sh knows removes, install and unpack, not '$command'." ;;
esac
