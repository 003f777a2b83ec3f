#!/usr/bin/env bash
# mqtick-accelerate on Debian's kernels, each started by qemu in software: broker, accelerator, one
# publisher and three subscribers in two network namespaces. Needs the Debian packages qemu-system-x86,
# busybox-static, iproute2 and xz-utils, and what `make accelerate broker-programs` has built.
#
# KERNELS="bookworm trixie"      the releases whose kernels are tried
# MQTICK_DEBIAN_MIRROR=ADDRESS  where they come from (default: where this machine's packages do)
set -euo pipefail
cd "$(dirname "$0")/.."

here=$PWD/build/kernels
built=broker/server/target/release
limit_s=900

die() {
  printf 'accelerate-kernels: %s\n' "$*" >&2
  exit 1
}

for program in qemu-system-x86_64 busybox ip tc apt-get xz cpio; do
  command -v "$program" >/dev/null ||
    die "$program is missing: apt-get install qemu-system-x86 busybox-static iproute2 xz-utils cpio"
done
[ "$(uname -m)" = x86_64 ] || die "it tries kernels for x86-64, and runs this machine's programs on them."
# shellcheck disable=SC2016  # apt-get fills in what is between the quotes
mirror=${MQTICK_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
  grep '/debian/*$' | head -n 1)}
[ -n "$mirror" ] || die "set MQTICK_DEBIAN_MIRROR: this machine names no Debian mirror."

# Unpack the newest kernel of a release into $here/RELEASE; nothing of this machine's packages changes.
kernel() {
  local release=$1 of=$here/$1 package
  [ -d "$of/tree" ] && return
  mkdir -p "$of/lists/partial" "$of/cache/archives/partial"
  printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' \
    "$mirror" "$release" >"$of/sources.list"
  local own=(-o "Dir::Etc::SourceList=$of/sources.list" -o "Dir::Etc::SourceParts=-"
    -o "Dir::State::Lists=$of/lists" -o "Dir::Cache=$of/cache" -o APT::Sandbox::User=root)
  apt-get "${own[@]}" -q update >"$of/log" 2>&1 || die "apt-get update of $release failed: see $of/log."
  package=$(apt-cache "${own[@]}" depends linux-image-amd64 | awk '/Depends:/ { print $2; exit }')
  (cd "$of" && apt-get "${own[@]}" -q download "$package") >>"$of/log" 2>&1 ||
    die "$package could not be had: see $of/log."
  dpkg-deb -x "$of/$package"_*.deb "$of/tree.part"
  rm "$of/$package"_*.deb
  mv "$of/tree.part" "$of/tree"
}

# Programs, and what they are linked with, which stays at its place.
put() {
  local to=$1 file
  for file in $(ldd "${@:2}" | grep -o '/[^ ]*[^ :]' | sort -u); do
    mkdir -p "$to$(dirname "$file")"
    [ -e "$to$file" ] || cp -L "$file" "$to$file"
  done
  for file in "${@:2}"; do
    rm -f "$to/bin/$(basename "$file")"
    cp -L "$file" "$to/bin/"
  done
}

initramfs() {
  local release=$1 tree=$here/$1/tree root=$here/$1/root module modules file
  rm -rf "$root"
  mkdir -p "$root"/{bin,dev,proc,sys,run,tmp,etc,modules}
  cp "$(command -v busybox)" "$root/bin/busybox"
  busybox --list | while read -r module; do [ "$module" = busybox ] || ln -sf busybox "$root/bin/$module"; done
  # A busybox's shell would take its own ip and tc.
  put "$root" "$(command -v dash)" "$(command -v ip)" "$(command -v tc)" \
    "$PWD/$built"/mqtick-{accelerate,broker,load}
  ln -sf dash "$root/bin/sh"
  modules=$(echo "$tree"/lib/modules/* "$tree"/usr/lib/modules/*)
  for module in drivers/net/veth net/sched/sch_ingress net/sched/cls_bpf; do
    for file in $(compgen -G "$tree/lib/modules/*/kernel/$module.ko*" ||
      compgen -G "$tree/usr/lib/modules/*/kernel/$module.ko*"); do
      case $file in
        *.xz) xz -dc "$file" >"$root/modules/$(basename "${file%.xz}")" ;;
        *) cp "$file" "$root/modules/" ;;
      esac
    done
  done
  [ -e "$root/modules/veth.ko" ] || die "$modules has no veth."
  cp scripts/accelerate-kernels-init.sh "$root/init"
  (cd "$root" && find . -print0 | cpio --null --create --format=newc --quiet | gzip -1) \
    >"$here/$release/initramfs"
}

for release in ${KERNELS:-bookworm trixie}; do
  kernel "$release"
  initramfs "$release"
  said=$here/$release/said
  timeout "$limit_s" qemu-system-x86_64 -accel tcg -cpu max -m 1024 -smp 2 -nographic -no-reboot \
    -nic none -kernel "$here/$release"/tree/boot/vmlinuz-* -initrd "$here/$release/initramfs" \
    -append 'console=ttyS0 quiet panic=-1 mitigations=off' </dev/null >"$said" 2>&1 || true
  tr -d '\r' <"$said" | sed -n 's/^.*mqtick: //p'
  grep -q 'mqtick: passed' <(tr -d '\r' <"$said") ||
    die "$release: its kernel did not copy to each subscriber: see $said."
done
