# shellcheck shell=bash
# What the scripts that build Debian packages share: date, commit, maintainer scripts, the last steps.
# A package NAME is a folder of files and packaging/NAME: control (all that is not computed), and
# sysusers, preset and overrides (of lintian) where it needs them.

# There is no address to write to.
contact=mqtick@example.org
# The date of everything in a package, and the end of its version.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
MQTICK_COMMIT=${MQTICK_COMMIT:-$(git describe --always --dirty=.dirty --exclude='*' --abbrev=10 2>/dev/null || echo unknown)}
export SOURCE_DATE_EPOCH MQTICK_COMMIT

dated() { echo "$1+$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y%m%d.%H%M%S)"; }

# What is in single quotes is for the package's own shell.
# shellcheck disable=SC2016
# maintainer_script postinst|prerm|postrm NAME FOLDER "RUNS" "STATE"
maintainer_script() {
  local units
  units=$(find "$3" -maxdepth 5 -path '*/lib/systemd/system/*' -type f -printf '%f\n' | sort | xargs)
  printf '#!/bin/sh\nset -e\n'
  case $1 in
    postinst)
      echo 'if [ "$1" != configure ]; then exit 0; fi'
      if [ -e "$3/usr/lib/sysusers.d/$2.conf" ]; then echo "systemd-sysusers $2.conf"; fi
      if [ -d "$3/usr/lib/mqtick" ]; then echo "py3compile -p $2 /usr/lib/mqtick"; fi
      if [ -e "packaging/$2/postinst" ]; then cat "packaging/$2/postinst"; fi
      [ -n "$units" ] || return 0
      # What the administrator switches off stays off after an upgrade, and after a removal too.
      printf 'if [ -z "$2" ]; then systemctl --quiet preset %s; fi\n' "$units"
      printf 'if [ -d /run/systemd/system ]; then\n  systemctl daemon-reload\n  # A program that cannot start says why in its log; it is installed all the same.\n  deb-systemd-invoke restart %s || :\nfi\n' "$4"
      ;;
    prerm)
      if [ -n "$units" ]; then
        printf 'if [ "$1" = remove ] && [ -d /run/systemd/system ]; then deb-systemd-invoke stop %s || :; fi\n' "$units"
      fi
      if [ -d "$3/usr/lib/mqtick" ]; then echo "py3clean -p $2"; fi
      ;;
    postrm)
      if [ -n "$units" ]; then
        printf 'if [ "$1" = purge ]; then\n  rm -rf %s\n' "$5"
        for unit in $units; do printf '  find /etc/systemd/system -lname "*/%s" -delete\n' "$unit"; done
        # Where it could not start, systemd remembers the unit.
        printf 'fi\nif [ -d /run/systemd/system ]; then\n  systemctl daemon-reload\n  systemctl reset-failed %s 2>/dev/null || :\nfi\n' "$units"
      fi
      if [ -e "packaging/$2/postrm" ]; then cat "packaging/$2/postrm"; fi
      ;;
  esac
}

# build_deb NAME VERSION ARCHITECTURE FOLDER ["RUNS" "STATE"]: makes build/NAME_VERSION_ARCHITECTURE.deb.
# RUNS: the units that an installation or an upgrade starts anew if they are enabled. STATE: what else a
# purge takes away.
build_deb() {
  local name=$1 version=$2 architecture=$3 folder=$4 file script here=packaging/$1
  local doc=$folder/usr/share/doc/$1
  mkdir -p "$folder/DEBIAN" "$doc"
  if [ -e "$here/sysusers" ]; then install -D -m 644 "$here/sysusers" "$folder/usr/lib/sysusers.d/$name.conf"; fi
  if [ -e "$here/preset" ]; then install -D -m 644 "$here/preset" "$folder/usr/lib/systemd/system-preset/80-$name.preset"; fi
  for file in "$here/overrides" ${5:+packaging/overrides}; do
    if [ -e "$file" ]; then sed "s/@NAME@/$name/" "$file" >>"$folder/overrides"; fi
  done
  if [ -e "$folder/overrides" ]; then
    install -D -m 644 "$folder/overrides" "$folder/usr/share/lintian/overrides/$name"
    rm "$folder/overrides"
  fi
  printf '%s (%s) unstable; urgency=medium\n\n  * %s\n\n -- The mqtick authors <%s>  %s\n' \
    "$name" "$version" "Commit $MQTICK_COMMIT: its CHANGELOG.md says what changed." \
    "$contact" "$(date --utc --rfc-email --date="@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.gz"
  for script in postinst prerm postrm; do
    maintainer_script $script "$name" "$folder" "${5:-}" "${6:-}" >"$folder/DEBIAN/$script"
    chmod 755 "$folder/DEBIAN/$script"
    if [ "$(wc -l <"$folder/DEBIAN/$script")" -le 2 ]; then rm "$folder/DEBIAN/$script"; fi
  done
  if [ -d "$folder/etc" ]; then (cd "$folder" && find etc -type f -printf '/%p\n' | sort >DEBIAN/conffiles); fi
  {
    printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: The mqtick authors <%s>\n' \
      "$name" "$version" "$architecture" "$contact"
    printf 'Installed-Size: %s\n' "$(du -k --apparent-size --summarize --exclude=DEBIAN "$folder" | cut -f1)"
    sed "s/@VERSION@/$version/" "$here/control"
  } >"$folder/DEBIAN/control"
  (cd "$folder" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
  find "$folder" -exec chmod go-w,a+rX {} +
  file=build/${name}_${version}_$architecture.deb
  rm -f "build/${name}"_*_"$architecture".deb
  dpkg-deb --root-owner-group -Zxz --build "$folder" "$file" >/dev/null
  say "made $file"
}
