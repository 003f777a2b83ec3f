# shellcheck shell=bash
# What an installation put where, one line each in /opt/mqtick/manifest, and how to take it away.
#
#   file PATH     we made it: removed          saved PATH    it was there before us: put back
#   folder PATH   removed if it is empty       unit NAME     disabled and stopped
#   user NAME     we made it: removed          group NAME    likewise
#
# A line is written before the action, so that half an installation can be removed too. Paths are
# written without DESTDIR.

root=${DESTDIR:-}
prefix=/opt/mqtick
manifest=$root$prefix/manifest

is_recorded() { grep -qxF -- "$*" "$manifest" 2>/dev/null; }

record() { is_recorded "$@" || printf '%s\n' "$*" >>"$manifest"; }

own_by() {
  # under DESTDIR no user but the caller needs to exist
  if [ -z "$root" ]; then chown "$1" "$2"; fi
}

make_folder() { # PATH MODE OWNER
  if [ -d "$root$1" ]; then return; fi
  make_folder "$(dirname "$1")" 755 root:root
  record folder "$1"
  mkdir "$root$1"
  chmod "$2" "$root$1"
  own_by "$3" "$root$1"
}

# A file that is not ours is kept and put back when we are removed.
save() {
  if [ -e "$root$1" ] && ! is_recorded file "$1"; then
    record saved "$1"
    mkdir -p "$root$prefix/saved$(dirname "$1")"
    cp -a "$root$1" "$root$prefix/saved$1"
  fi
}

# place SOURCE PATH MODE OWNER: under another name first, so that nobody reads half of it
place() {
  save "$2"
  record file "$2"
  make_folder "$(dirname "$2")" 755 root:root
  install -m "$3" "$1" "$root$2.mqtick-new"
  own_by "$4" "$root$2.mqtick-new"
  mv -f "$root$2.mqtick-new" "$root$2"
}

place_link() { # TARGET PATH
  save "$2"
  record file "$2"
  make_folder "$(dirname "$2")" 755 root:root
  ln -sfn "$1" "$root$2"
}

# the lines of one kind, the latest first
recorded() { sed -n "s/^$1 //p" "$manifest" | tac; }

has_systemd() { [ -z "$root" ] && [ -d /run/systemd/system ]; }

remove_everything() {
  local item services=() chrony=no
  if [ ! -e "$manifest" ]; then
    say "nothing to remove: there is no $manifest."
    return
  fi
  mapfile -t services < <(recorded unit)
  if [ -z "$root" ] && command -v systemctl >/dev/null && [ ${#services[@]} -gt 0 ]; then
    if has_systemd; then systemctl stop "${services[@]}" || true; fi
    systemctl disable "${services[@]}" 2>/dev/null || true
  fi
  if grep -q '^file /etc/chrony/' "$manifest"; then chrony=yes; fi
  while read -r item; do rm -f "$root$item"; done < <(recorded file)
  while read -r item; do
    mkdir -p "$root$(dirname "$item")"
    cp -a "$root$prefix/saved$item" "$root$item"
    say "put back: $root$item"
  done < <(recorded saved)
  while read -r item; do
    if [ -d "$root$item" ] && [ "$item" != $prefix ]; then
      rmdir "$root$item" 2>/dev/null || warn "not empty, so it stays: $root$item"
    fi
  done < <(recorded folder)
  if [ -z "$root" ]; then
    while read -r item; do userdel "$item" || true; done < <(recorded user)
    # userdel has also removed the group if nobody else is in it
    while read -r item; do
      if getent group "$item" >/dev/null; then groupdel "$item" || true; fi
    done < <(recorded group)
  fi
  rm -rf "$root$prefix" "$root/var/log/mqtick"
  if has_systemd; then
    systemctl daemon-reload
    # else systemd remembers that one failed
    systemctl reset-failed "${services[@]}" 2>/dev/null || true
  fi
  if [ "$chrony" = yes ] && [ -z "$root" ]; then
    # chronyd leaves its sockets behind, and makes those again that its other lines still name
    rm -f /run/chrony.mqtick*.sock
    # chronyd keeps a reference clock until it is restarted
    if has_systemd && systemctl -q is-active chrony; then systemctl restart chrony; fi
  fi
  say "removed."
}
