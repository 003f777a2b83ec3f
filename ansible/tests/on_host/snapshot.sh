# shellcheck shell=sh
# What `remove` has to bring back. Left out: what changes on any host by itself, and what was never
# there for a user to miss (logs, caches, the packages' own records of the past).
find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp \
  -o -path /var/tmp -o -path /var/log -o -path /var/cache -o -path /var/lib/apt \
  -o -path /var/lib/dpkg -o -path /var/lib/ucf -o -path /var/backups -o -path /var/lib/systemd -o -path '/home/*/.ansible' \
  -o -path /root/.ansible -o -path '/var/lib/chrony/*' -o -name __pycache__ \) -prune \
  -o \( -path /etc -o -path /etc/ld.so.cache \) \
  -o -printf 'file %p %y %m %u %g %l\n'
find /run -maxdepth 1 -name '*mqtick*' -printf 'file %p %y %m %u %g\n'
find /etc /usr/local -xdev -type f ! -name ld.so.cache ! -name 'passwd-' ! -name 'group-' \
  ! -name 'shadow-' ! -name 'gshadow-' -exec sha256sum {} + | sed 's/^/content /'
dpkg-query -W -f 'package ${Package} ${Version} ${db:Status-Abbrev}\n'
systemctl list-unit-files --no-legend | sed 's/^/unit /'
getent passwd | sed 's/^/user /'
getent group | sed 's/^/group /'
systemctl list-units --all --plain --no-legend 'mqtick*' 'chrony*' | sed 's/^/state /'
