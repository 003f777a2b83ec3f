#!/usr/bin/env bash
# Debian systems in folders, for the tests: made by debootstrap once and then kept. Root.
#
#   debian_tree.sh make FOLDER RELEASE PACKAGE,... [ARCHITECTURE]    nothing if FOLDER exists
#   debian_tree.sh run FOLDER COMMAND...    in it, as in a container that is not booted: processes
#                                           and mounts of its own, which end with the command
#
# MQTICK_DEBIAN_MIRROR=ADDRESS  where it comes from (default: debootstrap's own)
set -euo pipefail
# shellcheck source=scripts/say.sh
. "$(dirname "$0")/say.sh"

command=${1:-}
folder=${2:-}

make_tree() {
  local release=$1 packages=$2 architecture=${3:-$(dpkg --print-architecture)}
  local half_made=$folder.half-made log=$folder.log kept=${folder%/*}/packages
  mkdir -p "$kept"
  exec 9>"$folder.lock"
  flock 9
  if [ -d "$folder" ]; then return; fi
  say "making a Debian $release $architecture in $folder (minutes, once; log: $log)"
  rm -rf "$half_made"
  debootstrap --arch="$architecture" --variant=minbase --cache-dir="$kept" --include="$packages" \
    "$release" "$half_made" ${MQTICK_DEBIAN_MIRROR:+"$MQTICK_DEBIAN_MIRROR"} >"$log" 2>&1 ||
    die 1 "debootstrap of $release failed: see $log. A mirror can be named with" \
      "MQTICK_DEBIAN_MIRROR=http://HOST/debian."
  mv "$half_made" "$folder"
}

run_in_tree() { exec unshare --mount --pid --fork --kill-child "$0" enter "$folder" "$@"; }

enter_tree() {
  mount -t proc proc "$folder/proc"
  mount -t sysfs -o ro sysfs "$folder/sys"
  mount --rbind /dev "$folder/dev"
  mount -t tmpfs tmpfs "$folder/tmp"
  mount -t tmpfs tmpfs "$folder/run"
  exec chroot "$folder" "$@"
}

[ $# -ge 3 ] || die 2 "usage: debian_tree.sh make|run FOLDER ..."
[ "$(id -u)" -eq 0 ] || die 2 "this needs root, to make a Debian system and to run programs in it."
command -v debootstrap >/dev/null || die 1 "debootstrap is missing: apt-get install debootstrap"
shift 2
case $command in
  make) make_tree "$@" ;;
  run) run_in_tree "$@" ;;
  enter) enter_tree "$@" ;; # by run, in namespaces of its own
  *) die 2 "debian_tree.sh knows make and run, not '$command'." ;;
esac
