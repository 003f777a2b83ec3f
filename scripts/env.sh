# shellcheck shell=sh
# The search path for this checkout's programs. From the top of the checkout:  . scripts/env.sh
# .venv/debian comes before the system's programs: what was put there is meant to be used (see
# scripts/debian.sh). Debian keeps daemons in /usr/sbin, which is not on a normal user's path.
PATH="$PWD/.venv/bin:$PWD/.venv/debian/usr/sbin:$PWD/.venv/debian/usr/bin:$PATH:/usr/sbin:/sbin"
PATH="$PATH:$PWD/broker/server/target/release" # what `make broker-programs` has built
export PATH
