#!/usr/bin/env bash
# Builds packages twice, here and from a copy of the source in another folder, and says whether both
# are equal octet by octet.
#
#   packaging/twice.sh packaging/programs.sh
#   packaging/twice.sh scripts/broker-package.sh [ARCHITECTURE]
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/say.sh
. scripts/say.sh
# shellcheck source=packaging/deb.sh
. packaging/deb.sh

[ $# -ge 1 ] || die 2 "usage: packaging/twice.sh SCRIPT [ARGUMENT...]"
export PYTHON=${PYTHON:-$PWD/.venv/bin/python}
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

"$@"
git ls-files -z | xargs -0 cp --parents --target-directory="$copy"
(cd "$copy" && env -u CARGO_TARGET_DIR "$@")
sums=$(cd "$copy/build" && sha256sum ./*.deb)
(cd build && sha256sum --check --quiet <<<"$sums") ||
  die 1 "The two packages differ: something of a folder, a date or an order is in one of them."
say "equal: $sums"
