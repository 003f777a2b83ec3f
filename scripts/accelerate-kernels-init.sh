#!/bin/sh
# The first program on a kernel that scripts/accelerate-kernels.sh starts: what it says behind
# "mqtick: " is the result.
export PATH=/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /tmp
mount -t tmpfs none /run

end() {
  echo "mqtick: $*"
  sync
  poweroff -f
}

for module in veth sch_ingress cls_bpf; do
  insmod "/modules/$module.ko" || end "failed: no $module"
done
for space in b c; do
  ip netns add "$space" || end "failed: no namespaces"
  ip -n "$space" link set lo up
done
ip -n b link add b0 type veth peer name c0 netns c
ip -n b address add 10.77.0.1/24 dev b0
ip -n c address add 10.77.0.2/24 dev c0
ip -n b link set b0 up
ip -n c link set c0 up

cat >/tmp/broker.conf <<'CONF'
[[listener]]
address = "10.77.0.1:1883"
[access]
anonymous = true
[sn]
address = "10.77.0.1:1884"
subnets = ["10.0.0.0/8"]
CONF
ip netns exec b mqtick-broker --config /tmp/broker.conf 2>/tmp/broker.log &
sleep 2
ip netns exec b mqtick-accelerate --interface b0 --broker 10.77.0.1:1884 --only '#' --fresh \
  --control /tmp/control >/tmp/plane 2>&1 &
accelerator=$!
status() {
  mqtick-accelerate status --control /tmp/control
}
tries=0
until status >/tmp/status 2>&1; do
  tries=$((tries + 1))
  kill -0 "$accelerator" && [ "$tries" -lt 60 ] || end "failed: $(tail -c 600 /tmp/plane | tr '\n' ' ')"
  sleep 1
done
mkfifo /tmp/go
ip netns exec c mqtick-load fanout --sn --broker 10.77.0.1:1884 --subscribers 3 --messages 100 \
  --repeats 1 --until-eof </tmp/go >/tmp/load 2>&1 &
load=$!
exec 3>/tmp/go
tries=0
until status | grep -q 'to 3 subscribers'; do
  tries=$((tries + 1))
  [ "$tries" -lt 60 ] || end "failed: $(status; cat /tmp/load /tmp/broker.log)"
  sleep 1
done
sleep 2
before=$(status | sed -n 's/.* copies \([0-9]*\).*/\1/p')
exec 3>&-
wait "$load" || end "failed: $(cat /tmp/load)"
status >/tmp/status
copies=$(sed -n 's/.* copies \([0-9]*\).*/\1/p' /tmp/status)
echo "mqtick: Linux $(uname -r): $(grep '^data plane' /tmp/status), ${copies:-0} copies in all"
[ "${copies:-0}" -ge "$((${before:-0} + 300))" ] || end "failed: $(cat /tmp/status /tmp/load)"
grep -E 'lost|twice' /tmp/load | sed 's/^/mqtick: /'
end passed
