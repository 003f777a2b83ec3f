#!/usr/bin/env bash
# Builds the broker's package twice, here and from a copy of the source in another folder, and says
# whether the two are equal octet by octet.
#
#   scripts/broker-package-twice.sh [ARCHITECTURE]     default: this machine's
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/say.sh
. scripts/say.sh

[ $# -le 1 ] || die 2 "usage: scripts/broker-package-twice.sh [ARCHITECTURE]"
architecture=${1:-$(dpkg --print-architecture)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

scripts/broker-package.sh "$architecture"
git ls-files -z | xargs -0 cp --parents --target-directory="$copy"
(cd "$copy" && env -u CARGO_TARGET_DIR scripts/broker-package.sh "$architecture")
sums=$(cd build && sha256sum mqtick-broker_*_"$architecture".deb)
(cd "$copy/build" && sha256sum --check --quiet <<<"$sums") ||
  die 1 "The two packages differ: something of a folder, a date or an order is in one of them."
say "equal: $sums"
