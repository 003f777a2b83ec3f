# shellcheck shell=bash
# The part of the installation that concerns chrony. Reads and sets variables of install.sh.
# shellcheck disable=SC2154,SC2034

find_chronyd() { PATH=$PATH:/usr/sbin:/sbin command -v chronyd || true; }

# As requested; else as already configured, so that an upgrade changes nothing; else yes.
uses_chrony() {
  [ "$role" = client ] || return 1
  if [ -z "$chrony" ] && [ -e "$root$etc/$config" ]; then
    grep -qE '^discipline *= *"chrony"' "$root$etc/$config"
  else
    [ "$chrony" != no ]
  fi
}

# A line that chronyd does not understand stops it from starting, and leaves this host without time: so
# chronyd itself reads the lines before they take effect.
install_chrony_lines() {
  local lines directives chronyd conf=/etc/chrony/conf.d/mqtick.conf
  local unit=$units/chrony.service.d/mqtick.conf shipped=$here/client/systemd/chrony.service.d/mqtick.conf
  chronyd=$(find_chronyd)
  lines=$(mktemp)
  if [ -z "$number" ] && [ -e "$root$conf" ] && is_recorded file $conf; then
    cp "$root$conf" "$lines" # an upgrade
  else
    "$root$prefix/bin/mqtick-client" chrony-config --servers "${number:-0}" >"$lines"
  fi
  # on its command line, because AppArmor lets chronyd read no temporary file
  mapfile -t directives < <(grep -v '^#' "$lines")
  "$chronyd" -p "${directives[@]}" >/dev/null || {
    rm -f "$lines"
    die 1 "this chronyd ($("$chronyd" --version)) does not accept the lines that mqtick needs (see above)." \
      "Nothing of chrony was changed. CHRONY=no installs the client without it."
  }
  if ! cmp -s "$lines" "$root$conf" || ! cmp -s "$shipped" "$root$unit"; then chrony_changed=yes; fi
  place "$lines" $conf 644 root:root
  rm -f "$lines"
  if [ -z "$root" ]; then
    "$chronyd" -p -f /etc/chrony/chrony.conf >/dev/null || {
      rm -f $conf
      die 1 "with $conf chronyd would not start (see above), so it was taken" \
        "away again. Does /etc/chrony/chrony.conf work without it: chronyd -p -f /etc/chrony/chrony.conf?"
    }
    grep -qsE '^[[:space:]]*confdir[[:space:]].*/etc/chrony/conf\.d' /etc/chrony/chrony.conf ||
      warn "/etc/chrony/chrony.conf does not read /etc/chrony/conf.d: add the line" \
        "'confdir /etc/chrony/conf.d' to it and restart chrony."
  fi
  place "$shipped" "$unit" 644 root:root
}

# chronyd makes its sockets when it starts, so it has to restart if one is missing or closed to us,
# or if its lines have changed.
chrony_needs_restart() {
  local socket
  if [ "$chrony_changed" = yes ]; then return 0; fi
  while read -r socket; do
    if [ "$(stat -c %G "$socket" 2>/dev/null)" != mqtick ]; then return 0; fi
  done < <(grep -o '/run/chrony\.[^ ]*\.sock' /etc/chrony/conf.d/mqtick.conf)
  return 1
}
