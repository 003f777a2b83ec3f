#!/usr/bin/env bash
# Builds mqtick-broker, mqtick-join, mqtick-load and mqtick-accelerate as static programs, and a Debian
# package of them: build/mqtick-broker_VERSION_ARCHITECTURE.deb. The programs alone are in
# build/broker/ARCHITECTURE.
#
#   scripts/broker-package.sh [ARCHITECTURE...]     amd64, arm64 or armhf; default: this machine's
#
# It takes the Rust that is here; for another architecture than this machine's only if Rust's
# standard library for it and a cross compiler are here, too. Else it needs root and debootstrap: it
# builds in a small Debian 12 that it makes first (10 minutes and 3 GB, once), with Debian's Rust and
# cross compilers. Where qemu-user is, it runs what it built.
# With the same Rust, two builds of one commit are equal octet by octet.
#
# MQTICK_FLEET_CACHE=FOLDER     where that Debian is kept (default: ~/.cache/mqtick)
# MQTICK_DEBIAN_MIRROR=ADDRESS  where it comes from (default: debootstrap's own)
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/say.sh
. scripts/say.sh
# shellcheck source=packaging/deb.sh
. packaging/deb.sh

own=$(dpkg --print-architecture) || die 1 "A Debian package can be made on Debian only: dpkg is missing."
[ $# -gt 0 ] || set -- "$own"
cargo_home=${CARGO_HOME:-$HOME/.cargo}
targets=$(realpath -m "${CARGO_TARGET_DIR:-broker/server/target}")
tree=${MQTICK_FLEET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mqtick}/bookworm-rust
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' broker/server/Cargo.toml)
version=$(dated "$version")

rust_target() {
  case $1 in
    amd64) echo x86_64-unknown-linux-gnu ;;
    arm64) echo aarch64-unknown-linux-gnu ;;
    armhf) echo armv7-unknown-linux-gnueabihf ;;
    *) die 2 "$1 is not an architecture that is built: amd64, arm64 or armhf." ;;
  esac
}

gnu_name() {
  case $1 in
    amd64) echo x86_64-linux-gnu ;;
    arm64) echo aarch64-linux-gnu ;;
    armhf) echo arm-linux-gnueabihf ;;
  esac
}

# ---- build --------------------------------------------------------------------------------------
# settings COMPILER CARGO_HOME SOURCE TARGET-FOLDER TARGET: what cargo is told, a line each. No path
# of this machine is left in the programs.
settings() {
  local name=${5//-/_}
  printf '%s\n' "CARGO_HOME=$2" "CARGO_TARGET_DIR=$4" "MQTICK_ACCELERATE_OBJECT=$3/build/bpf/accelerate.o" "CARGO_TARGET_${name^^}_LINKER=$1" "CC_$name=$1" \
    CARGO_PROFILE_RELEASE_STRIP=symbols \
    "CFLAGS_$name=-ffile-prefix-map=$2=/cargo -ffile-prefix-map=$3=/mqtick -ffile-prefix-map=$4=/target" \
    "RUSTFLAGS=-C target-feature=+crt-static --remap-path-prefix=$2=/cargo --remap-path-prefix=$3=/mqtick --remap-path-prefix=$4=/target"
}

cargo_build=(cargo build --locked --release -p mqtick-broker -p mqtick-join -p mqtick-load
  -p mqtick-accelerate --features mqtick-accelerate/kernel)

# build_here TARGET COMPILER
build_here() {
  mapfile -t environment < <(settings "$2" "$cargo_home" "$PWD" "$targets" "$1")
  (cd broker/server && env -u SOURCE_DATE_EPOCH "${environment[@]}" "${cargo_build[@]}" --target "$1")
}

has_cross_tools() {
  [ -d "$(rustc --print target-libdir --target "$1")" ] && command -v "$2-gcc" >/dev/null
}

with_own_tools() {
  echo "install tools here ('rustup target add $1' and Debian's gcc-${2//_/-}) and run the same command again."
}

# make_tree ARCHITECTURE TARGET GNU-NAME
make_tree() {
  local architecture=$1 mirror
  scripts/debian_tree.sh make "$tree" bookworm ca-certificates
  if [ -e "$tree/ready-$architecture" ]; then return; fi
  say "installing Debian's Rust for $architecture there"
  # A new enough Rust comes with the security updates, which are beside the release.
  mirror=$(awk '$1 == "deb" { print $2; exit }' "$tree/etc/apt/sources.list")
  printf 'deb %s-security bookworm-security main\n' "${mirror%/}" >"$tree/etc/apt/sources.list.d/security.list"
  scripts/debian_tree.sh run "$tree" dpkg --add-architecture "$architecture"
  if ! scripts/debian_tree.sh run "$tree" apt-get --quiet=2 update ||
    ! scripts/debian_tree.sh run "$tree" env DEBIAN_FRONTEND=noninteractive \
      apt-get --quiet=2 --yes --no-install-recommends install cargo-web gcc libc6-dev qemu-user \
      "libstd-rust-web-dev:$architecture" "gcc-${3//_/-}" "libc6-dev-$architecture-cross" >/dev/null; then
    # Or another architecture's packages could not be had for this one's sake.
    scripts/debian_tree.sh run "$tree" dpkg --remove-architecture "$architecture"
    die 1 "The Debian mirror has no Rust for $architecture that can be installed now (above). Try" \
      "again later, or $(with_own_tools "$2" "$3")"
  fi
  touch "$tree/ready-$architecture"
}

build_in_tree() {
  local architecture=$1 rust=$2 gnu=$3
  [ "$(id -u)" -eq 0 ] || die 1 "Building for $architecture needs root, to make a Debian with the" \
    "compilers. Without root, build on such a machine itself, or $(with_own_tools "$rust" "$gnu")"
  make_tree "$architecture" "$rust" "$gnu"
  (cd broker/server && cargo fetch --locked --quiet)
  mkdir -p "$targets/cross" "$tree"/{mqtick,cargo,target}
  mapfile -t environment < <(settings "$gnu-gcc" /cargo /mqtick /target "$rust")
  # Mounts of its own, which end with it.
  # shellcheck disable=SC2016
  unshare --mount sh -euc 'mount --bind . "$1/mqtick" && mount --bind "$2" "$1/cargo" &&
    mount --bind "$3" "$1/target" && shift 3 && exec scripts/debian_tree.sh run "$@"' sh \
    "$tree" "$cargo_home" "$targets/cross" \
    "$tree" env -i -C /mqtick/broker/server PATH=/usr/bin:/bin HOME=/root "${environment[@]}" \
    "${cargo_build[@]}" --offline --target "$rust"
}

# ---- package ------------------------------------------------------------------------------------
package() {
  local architecture=$1 rust=$2 folder=build/broker/$1 programs=$3/$2/release doc
  rm -rf "$folder"
  doc=$folder/usr/share/doc/mqtick-broker
  install -D -t "$folder/usr/bin" "$programs"/mqtick-{broker,join,load,accelerate}
  install -D -m 644 -t "$folder/usr/lib/systemd/system" broker/server/systemd/mqtick-*.{service,socket}
  install -D -m 644 broker/server/broker.toml.example "$folder/etc/mqtick/broker.toml"
  install -D -m 644 broker/server/join.toml.example "$folder/etc/mqtick/join.toml"
  install -D -m 644 broker/server/accelerate.options.example "$folder/etc/mqtick/accelerate"
  install -D -m 644 -t "$doc" broker/server/README.md
  install -D -m 644 broker/server/join/README.md "$doc/join.md"
  python3 broker/server/licences.py copyright "$rust" >"$doc/copyright"
  build_deb mqtick-broker "$version" "$architecture" "$folder" \
    "mqtick-broker.service mqtick-join.service mqtick-accelerate.service" \
    "/var/lib/mqtick-broker /var/lib/private/mqtick-broker /var/lib/mqtick-join /var/lib/private/mqtick-join"
  say "the programs alone are in $folder/usr/bin"
}

scripts/rust.sh
make --no-print-directory "$PWD/build/bpf/accelerate.o"
python3 broker/server/licences.py
for architecture in "$@"; do
  rust=$(rust_target "$architecture")
  gnu=$(gnu_name "$architecture")
  runner=qemu-${gnu%%-*}
  built=$targets
  if [ "$architecture" = "$own" ]; then
    build_here "$rust" cc
    "$built/$rust/release/mqtick-broker" --version
  elif has_cross_tools "$rust" "$gnu"; then
    build_here "$rust" "$gnu-gcc"
    if command -v "$runner" >/dev/null; then
      say "under $runner: $("$runner" "$built/$rust/release/mqtick-broker" --version)"
    fi
  else
    built=$targets/cross
    build_in_tree "$architecture" "$rust" "$gnu"
    cp "$built/$rust/release/mqtick-broker" "$tree/root/"
    say "under $runner: $(scripts/debian_tree.sh run "$tree" "$runner" /root/mqtick-broker --version)"
  fi
  package "$architecture" "$rust" "$built"
done
