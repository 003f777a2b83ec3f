#!/usr/bin/env bash
# Puts a program on this machine as a service, or takes everything away again. Run it as root.
#
#   scripts/install.sh server|client --broker mqtt://HOST[:PORT] [--ca FILE] [--username NAME]
#       [--password-file FILE] [--keys FILE] [--number N[,N...]] [--chrony no] [--no-start]
#   scripts/install.sh uninstall
#
# A second run brings the program up to date and keeps the configuration. DESTDIR=FOLDER installs
# below a folder, without users and services: for tests and for building images.
set -euo pipefail
umask 022 # the service must be able to read what is installed
here=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=scripts/say.sh
. "$here/scripts/say.sh"
# shellcheck source=scripts/manifest.sh
. "$here/scripts/manifest.sh"
# shellcheck source=scripts/chrony.sh
. "$here/scripts/chrony.sh"

etc=/etc/mqtick
units=/etc/systemd/system
usage="usage: scripts/install.sh server|client --broker mqtt://HOST, or scripts/install.sh uninstall"

# ---- what was asked for -------------------------------------------------------------------------
role='' program='' config='' service=''
broker='' ca='' username='' password_file='' keys='' number='' chrony='' start=yes
with_chrony=no chrony_changed=no work=''

read_arguments() {
  role=${1:-}
  case $role in
    server) program=mqtick-timeserver config=timeserver.toml ;;
    client) program=mqtick-client config=client.toml ;;
    uninstall) ;;
    *) die 2 "$usage" ;;
  esac
  service=$program.service
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      --no-start) start=no && shift && continue ;;
      --broker | --ca | --username | --password-file | --keys | --number | --chrony) ;;
      *) die 2 "unknown word '$1'. $usage" ;;
    esac
    [ $# -ge 2 ] || die 2 "$1 needs a value. $usage"
    case $1 in
      --broker) broker=$2 ;;
      --ca) ca=$2 ;;
      --username) username=$2 ;;
      --password-file) password_file=$2 ;;
      --keys) keys=$2 ;;
      --number) number=$2 ;;
      --chrony) chrony=$2 ;;
    esac
    shift 2
  done
}

check_arguments() {
  local name path
  [[ $root =~ ^(/.*)?$ ]] || die 2 "DESTDIR=$root must begin with a slash."
  if [ "$(id -u)" -ne 0 ] && [ -z "$root" ]; then
    die 2 "this needs root, to write to $prefix, $etc and $units. Run it with sudo."
  fi
  [ "$role" != uninstall ] || return 0
  if [ -z "$broker" ] && [ ! -e "$root$etc/$config" ]; then
    die 2 "BROKER is missing: say where the MQTT broker is," \
      "for example: make install-$role BROKER=mqtt://broker.lan"
  fi
  if [ -n "$broker" ]; then check_broker; fi
  if [ -n "$number" ]; then check_number; fi
  [[ $chrony =~ ^(yes|no|)$ ]] || die 2 "CHRONY=$chrony is not understood: write yes or no."
  for name in ca password_file keys; do
    path=${!name}
    if [ -n "$path" ] && { [ ! -f "$path" ] || [ ! -r "$path" ]; }; then
      die 2 "${name^^}=$path is not a file that can be read."
    fi
  done
  if [ -e "$root$prefix" ] && [ ! -e "$manifest" ]; then
    die 1 "$root$prefix is there, but not from an installation like this one (it has no manifest)." \
      "Move it away first."
  fi
  if uses_chrony && [ -z "$(find_chronyd)" ]; then
    die 1 "chrony is not installed, and the client hands its measurements to it. Either" \
      "'sudo apt-get install chrony' (it replaces systemd-timesyncd) and run the same command again," \
      "or add CHRONY=no: the client then measures, shows and drives pins, and nobody moves the clock."
  fi
}

# As the programs judge it, and before anything is written: an address may contain a password, which
# the sentence does not repeat. On standard input, because others see the list of processes.
check_broker() {
  local python why code='
import runpy, sys
names = runpy.run_path(sys.argv[1])
try:
    names["parse_broker_url"](sys.stdin.read())
except names["BrokerError"] as error:
    print(error)'
  python=$(find_python)
  why=$(printf %s "$broker" | "$python" -c "$code" "$here/mqtt/mqtick/mqtt/broker.py")
  [ -z "$why" ] || die 2 "BROKER= cannot be used, and nothing was written:" \
    "${why/password_file/PASSWORD_FILE}. Write for example BROKER=mqtt://broker.lan"
}

check_number() {
  local each
  for each in ${number//,/ }; do
    if ! [[ $each =~ ^[0-9]{1,3}$ ]] || [ "$each" -gt 255 ]; then
      die 2 "NUMBER=$number: the number of a time server is from 0 to 255, but '$each' is not."
    fi
  done
  if [ "$role" = server ] && [[ $number = *,* ]]; then
    die 2 "NUMBER=$number names several numbers, but a time server has one. (Clients may name several.)"
  fi
}

# ---- steps --------------------------------------------------------------------------------------
# The service may not look into home folders, so the system's interpreter comes first.
find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} /usr/bin/python3 python3 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
        printf '%s\n' "$candidate"
        return
      fi
      warn "$candidate cannot make virtual environments: run 'sudo apt-get install python3-venv'."
    fi
  done
  die 1 "no Python 3.11 or newer that can make virtual environments was found." \
    "Use Debian 12 or newer with python3-venv, or name one with PYTHON=/path/to/python3."
}

install_program() {
  local python bin=$root$prefix/bin
  mkdir -p "$root$prefix"
  touch "$manifest"
  if ! "$bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    say "making $root$prefix with $("$python" --version)"
    "$python" -m venv "$root$prefix"
  fi
  say "building and installing mqtick from $here"
  # pip takes no file whose SHA-256 is not in the lists. What builds mqtick stays out of $prefix.
  local pip=("$bin/python" -m pip --quiet --no-cache-dir --disable-pip-version-check)
  local lists=$here/requirements
  local hashed=(install --no-warn-script-location --require-hashes)
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  export PYTHONPATH=$work/build
  {
    "${pip[@]}" "${hashed[@]}" --target "$work/build" -r "$lists/build.txt" &&
      "${pip[@]}" "${hashed[@]}" -r "$lists/service.txt" &&
      "${pip[@]}" wheel --no-deps --no-build-isolation --wheel-dir "$work" "$here" &&
      "${pip[@]}" install --no-deps --no-index --force-reinstall "$work"/mqtick-*.whl
  } ||
    die 1 "pip could not install mqtick (see its output above). Is there a network? A file that is" \
      "not in $lists is refused."
  local backend
  for backend in gpiod pigpio; do
    "${pip[@]}" "${hashed[@]}" --no-build-isolation -r "$lists/$backend.txt" ||
      warn "pip could not install $backend (see its output above): everything works" \
        "except pins with that back end. On a 32-bit system gpiod is compiled: install gcc and" \
        "python3-dev, then run this again."
  done
  unset PYTHONPATH
  place_link "$prefix/bin/$program" "/usr/local/bin/$program"
  place "$here/docs/operations.md" "$prefix/doc/operations.md" 644 root:root
  # so that it can be taken away when this checkout is gone
  local script
  for script in install.sh manifest.sh chrony.sh say.sh; do
    place "$here/scripts/$script" "$prefix/scripts/$script" 755 root:root
  done
}

make_user() {
  if [ -n "$root" ]; then return; fi
  if ! getent group mqtick >/dev/null; then
    record group mqtick
    groupadd --system mqtick
  fi
  if ! getent passwd mqtick >/dev/null; then
    record user mqtick
    useradd --system --gid mqtick --home-dir /nonexistent --no-create-home \
      --shell /usr/sbin/nologin mqtick
  fi
  # owns the GPIO devices of a Raspberry Pi; Debian has no such group
  if getent group gpio >/dev/null; then usermod --append --groups gpio mqtick; fi
}

# The service may read neither home folders nor other people's files: what it needs is copied.
write_config() {
  local stem=${config%.toml} values=() fresh
  make_folder $etc 755 root:root
  if [ -n "$broker" ]; then values+=("broker=$broker"); fi
  if [ -n "$username" ]; then
    values+=("username=$username")
    # the access list in docs/protocol.md lets a client use the topics of its user name only
    if [ "$role" = client ] && [[ $username =~ ^[A-Za-z0-9_.-]{1,16}$ ]]; then
      values+=("name=$username")
    fi
  fi
  if [ -n "$ca" ]; then
    place "$ca" "$etc/$stem.ca.pem" 644 root:root
    values+=("ca_file=$etc/$stem.ca.pem")
  fi
  if [ -n "$password_file" ]; then
    place "$password_file" "$etc/$stem.password" 640 root:mqtick
    values+=("password_file=$etc/$stem.password")
  fi
  if [ -n "$keys" ]; then
    place "$keys" "$etc/$stem.keys" 640 root:mqtick
    values+=("keys_file=$etc/$stem.keys")
  fi
  if [ "$role" = server ] && [ -n "$number" ]; then values+=("number=$number"); fi
  if [ -e "$root$etc/$config" ] && [ ${#values[@]} -eq 0 ] && [ -z "$chrony" ]; then
    say "kept: $root$etc/$config"
    return
  fi
  if [ "$with_chrony" = yes ]; then values+=("discipline=chrony"); fi
  values+=("realtime.expect_fifo=true")
  fresh=$(mktemp)
  "$root$prefix/bin/$program" run --example-config |
    "$root$prefix/bin/python" "$here/scripts/write_config.py" "${values[@]}" >"$fresh"
  if [ ! -e "$root$etc/$config" ]; then
    place "$fresh" "$etc/$config" 644 root:root
  elif ! cmp -s "$fresh" "$root$etc/$config"; then
    place "$fresh" "$etc/$config.new" 644 root:root
    warn "$root$etc/$config already exists and stays as it is. What this call would have written is in" \
      "$etc/$config.new: compare them, and rename it if you want it."
  fi
  rm -f "$fresh"
}

check_config() {
  if [ -n "$root" ]; then return; fi # the files it names are not in place yet
  runuser -u mqtick -- "$prefix/bin/$program" run --config "$etc/$config" --check-config ||
    die 1 "$etc/$config is not usable (see above). Correct it and run the same command again," \
      "or take everything away: sudo $prefix/scripts/install.sh uninstall"
}

install_units() {
  place "$here/${program#mqtick-}/systemd/$service" "$units/$service" 644 root:root
  record unit "$service"
  if [ "$role" = client ]; then
    place "$here/client/systemd/mqtick-wait-sync.service" $units/mqtick-wait-sync.service 644 root:root
    record unit mqtick-wait-sync.service
  fi
}

start_service() {
  local first
  if [ -n "$root" ]; then return; fi
  if ! has_systemd; then
    say "systemd is not running here, so nothing was started. By hand:" \
      "$prefix/bin/$program run --config $etc/$config"
    return
  fi
  systemctl daemon-reload
  if [ "$start" = no ]; then
    if [ "$with_chrony" = yes ]; then first="systemctl restart chrony; "; fi
    say "nothing was started. When you want it: ${first:-}systemctl enable --now $service"
    return
  fi
  if [ "$with_chrony" = yes ] && chrony_needs_restart; then
    if systemctl -q is-enabled chrony; then
      systemctl restart chrony
    else
      warn "chrony is installed but switched off, so nobody moves the clock:" \
        "systemctl enable --now chrony"
    fi
  fi
  systemctl enable --quiet "$service"
  systemctl restart "$service" || {
    journalctl --no-pager --unit "$service" --lines 20 >&2 || true
    die 1 "$service does not start; its last log lines are above. When the cause is fixed:" \
      "systemctl restart $service"
  }
  say "$service is running. Its status: $program status"
}

main() {
  read_arguments "$@"
  check_arguments
  if [ "$role" = uninstall ]; then
    remove_everything
    return
  fi
  # before there is a configuration of our own
  if uses_chrony; then with_chrony=yes; fi
  install_program
  make_user
  write_config
  check_config
  if [ "$with_chrony" = yes ]; then install_chrony_lines; fi
  install_units
  start_service
}

main "$@"
exit
