#!/usr/bin/env bash
# What a new user sees: a minimal Debian, a clone of this checkout's last commit, and the README's
# two commands, `make demo` and `make test`, in a container that is not booted. Root.
#
#   tests/fresh/run.sh [RELEASE-USER...]   default: bookworm-root bookworm-user trixie-root trixie-user
#                                          (user: an ordinary one, without sudo)
#
# Prints how each command ended, after what time, with how many more packages and megabytes. What
# they said is kept in build/fresh/. How this machine reaches its package registries is handed on:
# apt's settings for that (apt-config Acquire), pip's (pip.conf, PIP_*, folders of PIP_FIND_LINKS),
# proxies, name servers, and authorities in /usr/local/share/ca-certificates; MQTICK_SAME_EXAMPLES
# too. No cache is: what is fetched is fetched anew.
#
# TEST=test-busy                another target than `make test`
# MQTICK_FLEET_CACHE=FOLDER     where the blank systems are kept (default: ~/.cache/mqtick)
# MQTICK_DEBIAN_MIRROR=ADDRESS  where they come from (default: debootstrap's own)
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/say.sh
. scripts/say.sh

cache=${MQTICK_FLEET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mqtick}
packages=git,make,python3,python3-venv,ca-certificates
logs=$PWD/build/fresh
# What Docker leaves root in a container.
rights=-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap
rights+=,+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap

[ "$(id -u)" -eq 0 ] || die 2 "this needs root, to make a Debian system and to run programs in it."
# Mounts of its own, which end with it.
if [ -z "${MQTICK_FRESH_MOUNTS:-}" ]; then MQTICK_FRESH_MOUNTS=1 exec unshare --mount "$0" "$@"; fi
[ $# -gt 0 ] || set -- bookworm-root bookworm-user trixie-root trixie-user
work=$(mktemp -d /var/tmp/mqtick-fresh.XXXXXX)
trap 'umount --lazy "$work/root" 2>/dev/null || true; rm -rf "$work"' EXIT
mkdir -p "$logs" "$work/root"

# ---- a fresh system -----------------------------------------------------------------------------
fresh_system() { # RELEASE
  local blank=$cache/minimal-$1
  umount --lazy "$work/root" 2>/dev/null || true
  rm -rf "$work/upper" "$work/work"
  mkdir "$work/upper" "$work/work"
  scripts/debian_tree.sh make "$blank" "$1" "$packages"
  mount -t overlay overlay "$work/root" \
    -o "lowerdir=$blank,upperdir=$work/upper,workdir=$work/work,volatile"
  hand_on
}

hand_on() {
  local file folder
  cp -L /etc/resolv.conf /etc/hosts "$work/root/etc/"
  apt-config dump Acquire >"$work/root/etc/apt/apt.conf.d/99handed-on"
  for file in /etc/pip.conf "$HOME/.config/pip/pip.conf"; do
    if [ -e "$file" ]; then cat "$file" >>"$work/root/etc/pip.conf"; fi
  done
  for folder in ${PIP_FIND_LINKS:-}; do
    [ -d "$folder" ] || continue
    mkdir -p "$work/root$folder"
    mount --bind -o ro "$folder" "$work/root$folder"
  done
  if [ -d /usr/local/share/ca-certificates ]; then
    cp -r /usr/local/share/ca-certificates "$work/root/usr/local/share/"
    chroot "$work/root" update-ca-certificates >/dev/null 2>&1
  fi
}

handed_on() { env | grep -iE '^(PIP_|MQTICK_SAME_EXAMPLES=|(http|https|ftp|all|no)_proxy=)' || true; }

# ---- the README's commands ----------------------------------------------------------------------
in_it() { # USER HOME COMMAND...
  local settings
  mapfile -t settings < <(handed_on)
  scripts/debian_tree.sh run "$work/root" setpriv "--bounding-set=$rights" \
    --reuid="$1" --regid="$1" --init-groups env -i -C "$2/mqtick" "HOME=$2" LANG=C.UTF-8 \
    PATH=/usr/local/bin:/usr/bin:/bin "${settings[@]}" "${@:3}"
}

megabytes() { du -sm "$work/upper" | cut -f1; }

# installed by dpkg, or unpacked below .venv
count_packages() { # HOME
  {
    chroot "$work/root" dpkg-query --show
    find "$work/root$1/mqtick/.venv/debian/root/usr/share/doc" -mindepth 1 -maxdepth 1 2>/dev/null || true
  } | wc -l
}

try() { # RELEASE USER HOME COMMAND...
  local status=0 log=$logs/$1-$2-$5.log before packages_before outcome
  before=$(megabytes)
  packages_before=$(count_packages "$3")
  SECONDS=0
  in_it "$2" "$3" "${@:4}" </dev/null >"$log" 2>&1 || status=$?
  outcome=$(grep -oE '[0-9]+ [a-z]+(, [0-9]+ [a-z]+)* in [0-9.]+s' "$log" | tail -1)
  printf '%-9s %-5s %-10s %-4s %5s s %5s packages %5s MB  %s\n' "$1" "$2" "${*:4}" \
    "$([ $status -eq 0 ] && echo good || echo BAD)" "$SECONDS" \
    "+$(($(count_packages "$3") - packages_before))" "+$(($(megabytes) - before))" "$outcome"
  grep -E '^(FAILED|ERROR) ' "$log" || true
  return "$status"
}

# -------------------------------------------------------------------------------------------------
if [ -n "$(git status --porcelain)" ]; then warn "what is not committed is not in the clone."; fi
worst=0
for system in "$@"; do
  [[ $system =~ ^([a-z]+)-(root|user)$ ]] || die 2 "'$system' is no RELEASE-root or RELEASE-user."
  release=${BASH_REMATCH[1]} user=${BASH_REMATCH[2]}
  fresh_system "$release"
  if [ "$user" = root ]; then home=/root; else
    home=/home/$user
    chroot "$work/root" useradd --create-home --user-group "$user"
  fi
  git clone --quiet --no-local . "$work/root$home/mqtick"
  chroot "$work/root" chown -R "$user:$user" "$home"
  for command in demo "${TEST:-test}"; do
    try "$release" "$user" "$home" make "$command" || worst=1
  done
done
say "what the commands said is in build/fresh/"
exit $worst
