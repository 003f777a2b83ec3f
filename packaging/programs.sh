#!/usr/bin/env bash
# Builds the Debian packages of the Python programs, for Debian 12 and newer and every architecture:
# build/mqtick-{common,client,timeserver,lab}_VERSION_all.deb. Two builds of one commit are equal octet
# by octet. PYTHON=FILE has what `make setup-check` installs (default: that of .venv).
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/say.sh
. scripts/say.sh
# shellcheck source=packaging/deb.sh
. packaging/deb.sh

python=${PYTHON:-$PWD/.venv/bin/python}
pure=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
version=$(dated "$pure")
trees=$PWD/build/packages
modules=$trees/mqtick-common/usr/lib/mqtick
bench=$trees/mqtick-lab/usr/lib/mqtick
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export COLUMNS=80 PYTHONDONTWRITEBYTECODE=1
umask 022

# ---- modules ------------------------------------------------------------------------------------
pip=("$python" -m pip --quiet --disable-pip-version-check)
hashed=(install --require-hashes --no-compile --no-deps)

fetch_modules() {
  local place
  "${pip[@]}" "${hashed[@]}" --target "$work/tools" -r requirements/build.txt
  export PYTHONPATH=$work/tools
  "${pip[@]}" "${hashed[@]}" --target "$work/manuals" --no-build-isolation -r requirements/manuals.txt
  "${pip[@]}" wheel --no-deps --no-build-isolation --wheel-dir "$work" .
  "${pip[@]}" "${hashed[@]}" --target "$modules" -r requirements/service.txt
  "${pip[@]}" "${hashed[@]}" --target "$modules" -r requirements/pigpio.txt
  "${pip[@]}" install --no-deps --no-index --no-compile --target "$modules" "$work"/mqtick-*.whl
  "${pip[@]}" "${hashed[@]}" --target "$bench" -r requirements/bench.txt
  # The programs ask the package's own data for their version: it names the commit.
  sed -i "s/^Version: .*/Version: $pure+g$MQTICK_COMMIT/" "$modules/mqtick-$pure.dist-info/METADATA"
  mv "$modules/mqtick-$pure.dist-info" "$modules/mqtick-$pure+g$MQTICK_COMMIT.dist-info"
  for place in "$modules" "$bench"; do
    rm -rf "${place:?}"/{bin,*.dist-info/{RECORD,INSTALLER,REQUESTED,direct_url.json}}
  done
  find "$bench" -name '*.py' -exec sed -i '1{/^#!/d}' {} + # modules of others that think that they are programs
  mkdir "$bench/mqtick"
  mv "$modules"/mqtick/{lab,recording,analysis,report_program.py} "$bench/mqtick/"
  export PYTHONPATH=$modules:$bench:$work/manuals
}

# ---- what each program brings -------------------------------------------------------------------
# program PACKAGE NAME MODULE PARSER-MODULE WHAT: the command, its manual page and its completions
program() {
  local share=$trees/$1/usr/share name=$2 main=$3 parser=$4
  mkdir -p "$trees/$1/usr/bin" "$share"/{man/man1,bash-completion/completions,zsh/vendor-completions}
  cat >"$trees/$1/usr/bin/$name" <<EOF
#!/usr/bin/python3 -I
import os
import sys

# Programs that it starts find the same modules.
os.environ["PYTHONPATH"] = "/usr/lib/mqtick"
sys.path.insert(0, "/usr/lib/mqtick")
from $main import main

sys.exit(main())
EOF
  chmod 755 "$trees/$1/usr/bin/$name"
  # A line of help that begins with a dot (.npz) would be taken for a macro.
  "$python" -c 'from argparse_manpage.cli import main; main()' --module "$parser" --function _parser \
    --prog "$name" --description "$5" --project-name mqtick --version "$pure" --manual-title mqtick \
    --format single-commands-section | sed 's/^\.\([a-z]\{3,\}\)/\\\&.\1/' | gzip -9n >"$share/man/man1/$name.1.gz"
  "$python" -m shtab --shell bash --prog "$name" --prefix "${name//-/_}" "$parser._parser" >"$share/bash-completion/completions/$name"
  "$python" -m shtab --shell zsh --prog "$name" --prefix "${name//-/_}" "$parser._parser" >"$share/zsh/vendor-completions/_$name"
}

# config PACKAGE NAME KEY=VALUE...: the commented example, with these values
config() {
  mkdir -p "$trees/$1/etc/mqtick"
  "$python" -m "mqtick.$2.cli" run --example-config |
    "$python" scripts/write_config.py "${@:3}" >"$trees/$1/etc/mqtick/$2.toml"
}

# unit PACKAGE FILE...: with the places of a package
unit() {
  local file
  for file in "${@:2}"; do
    install -d "$trees/$1/usr/lib/systemd/system"
    sed 's,/opt/mqtick/bin/,/usr/bin/,; s,/opt/mqtick/doc/,/usr/share/doc/mqtick-common/,' "$file" \
      >"$trees/$1/usr/lib/systemd/system/${file##*/}"
  done
}

# -------------------------------------------------------------------------------------------------
command -v dpkg-deb >/dev/null || die 1 "A Debian package can be made on Debian only: dpkg-deb is missing."
rm -rf "$trees"
mkdir -p "$modules" "$bench"
fetch_modules

install -D -m 644 -t "$trees/mqtick-common/usr/share/doc/mqtick-common" docs/operations.md

program mqtick-client mqtick-client mqtick.client.cli mqtick.client.cli \
  "knows the time from an MQTT broker, and how well"
config mqtick-client client discipline=chrony realtime.expect_fifo=true
unit mqtick-client client/systemd/*.service
install -D -m 644 -t "$trees/mqtick-client/usr/lib/systemd/system/chrony.service.d" \
  client/systemd/chrony.service.d/mqtick.conf
mkdir -p "$trees/mqtick-client/etc/chrony/conf.d"
"$python" -m mqtick.client.cli chrony-config --chrony-version 4.3 \
  >"$trees/mqtick-client/etc/chrony/conf.d/mqtick.conf"

program mqtick-timeserver mqtick-timeserver mqtick.timeserver.cli mqtick.timeserver.cli \
  "publishes the time on an MQTT broker"
config mqtick-timeserver timeserver realtime.expect_fifo=true
unit mqtick-timeserver timeserver/systemd/*.service

program mqtick-lab mqtick-lab mqtick.lab.cli mqtick.lab.cli \
  "measures latency and skew over MQTT"
program mqtick-lab mqtick-report mqtick.report_program mqtick.analysis.cli \
  "makes reports of captures"

for name in common client timeserver lab; do
  install -D -m 644 packaging/copyright "$trees/mqtick-$name/usr/share/doc/mqtick-$name/copyright"
  runs='' state=''
  case $name in
    client) runs=mqtick-client.service state='/etc/mqtick/client.* /var/log/mqtick' ;;
    timeserver) runs=mqtick-timeserver.service state='/etc/mqtick/timeserver.*' ;;
  esac
  build_deb "mqtick-$name" "$version" all "$trees/mqtick-$name" "$runs" "$state"
done
