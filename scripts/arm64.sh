#!/usr/bin/env bash
# Runs the tests of protocol and client once under Debian 12 arm64, which qemu emulates: a system as
# on a 64-bit Raspberry Pi, with its own Mosquitto, chronyd and compiler. Takes eight minutes, and
# four the next time: the system is kept. Needs root and the Debian packages debootstrap,
# qemu-user-static and binfmt-support.
#
#   scripts/arm64.sh [PYTEST ARGUMENT...]     default: protocol and client, the fast tests
#
# MQTICK_FLEET_CACHE=FOLDER     where the system is kept (default: ~/.cache/mqtick)
# MQTICK_DEBIAN_MIRROR=ADDRESS  where it comes from (default: debootstrap's own)
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/say.sh
. scripts/say.sh

tree=${MQTICK_FLEET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mqtick}/bookworm-arm64
packages=python3,mosquitto,chrony,openssl,gcc,libc6-dev,iproute2
what_tests_need=(paho-mqtt pytest pytest-timeout hypothesis prometheus-client)

[ "$(id -u)" -eq 0 ] || die 2 "scripts/arm64.sh needs root, to make a Debian system and to run programs in it."
for program in debootstrap qemu-aarch64-static update-binfmts; do
  command -v $program >/dev/null || die 1 "$program is missing, so that programs for arm64 cannot" \
    "run here: apt-get install debootstrap qemu-user-static binfmt-support"
done
# Mounts of its own, which end with it.
if [ -z "${MQTICK_OWN_MOUNTS:-}" ]; then MQTICK_OWN_MOUNTS=1 exec unshare --mount "$0" "$@"; fi

# The kernel hands programs for arm64 to qemu.
binfmt=/proc/sys/fs/binfmt_misc
[ -e $binfmt/register ] || mount -t binfmt_misc binfmt_misc $binfmt ||
  die 1 "this kernel cannot be told to hand programs for arm64 to qemu (it has no binfmt_misc)."
[ -e $binfmt/qemu-aarch64 ] || update-binfmts --enable qemu-aarch64

# ---- the system ---------------------------------------------------------------------------------
scripts/debian_tree.sh make "$tree" bookworm "$packages" arm64

# ---- the Python parts, put there by this machine's pip, which is faster ---------------------------
scripts/setup.sh check
say "putting mqtick and what the tests need into it"
python=$tree/opt/python
rm -rf "$python"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
  --target "$python" --platform manylinux_2_36_aarch64 --platform manylinux2014_aarch64 \
  --python-version 3.11 --only-binary=:all: -c constraints.txt "${what_tests_need[@]}"
PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt .venv/bin/python -m pip install \
  --quiet --disable-pip-version-check --root-user-action=ignore --target "$python" --upgrade --no-deps .

# ---- the tests ----------------------------------------------------------------------------------
# qemu keeps the option SO_TIMESTAMPING from the kernel, so that there are no kernel timestamps, and
# catches every signal itself, so that nobody sees when the program starts to.
not_under_qemu=(
  mqtt/tests/test_mqtt_live.py::test_a_message_goes_to_the_broker_and_back
  mqtt/tests/test_mqtt_tls.py::test_a_broker_that_our_authority_vouches_for_is_believed
  mqtt/tests/test_stamps.py::test_the_kernel_stamps_what_is_received
  mqtt/tests/test_stamps.py::test_the_kernel_stamps_what_is_sent_and_when_it_was_asked
  mqtt/tests/test_stamps.py::test_several_messages_have_each_their_own_stamp
  mqtt/tests/test_stamps.py::test_a_stamp_is_matched_by_its_number_though_another_was_lost
  mqtt/tests/test_stamps.py::test_the_error_queue_is_empty_afterwards_and_no_poll_returns_for_it
  mqtt/tests/test_stamps.py::test_stamps_that_never_come_take_no_memory_without_end
  mqtt/tests/test_stamps.py::test_small_reads_cost_one_system_call_and_keep_the_stamp
  mqtt/tests/test_stamps.py::test_ipv6_has_stamps_too
  mqtt/tests/test_stamps.py::test_kernels_that_refuse_the_new_option_in_a_message_stamp_transmissions_too
  mqtt/tests/test_stamps.py::test_kernels_without_the_new_option_are_asked_with_the_old_one
  client/tests/test_doctor.py::test_the_probe_finds_the_kernels_timestamps_on_this_host
  client/tests/test_doctor.py::test_a_good_host_has_no_failure
  client/tests/test_client_cli.py::test_control_c_ends_a_wait_without_a_traceback
)
if [ $# -eq 0 ]; then
  say "left out, because qemu cannot run them:" "${not_under_qemu[@]##*::}"
  set -- "${not_under_qemu[@]/#/--deselect=}" -m 'not slow and not steers_clock' protocol/tests mqtt/tests client/tests
fi
mkdir -p "$tree/mqtick"
mount --bind -o ro . "$tree/mqtick"
say "running the tests on $(chroot "$tree" uname -m), Debian $(cat "$tree/etc/debian_version")"
exec scripts/debian_tree.sh run "$tree" /usr/bin/env -i -C /mqtick HOME=/root LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin \
  PYTHONPATH=/opt/python PYTHONDONTWRITEBYTECODE=1 MQTICK_SAME_EXAMPLES=1 \
  python3 -m pytest -p no:cacheprovider "$@"
