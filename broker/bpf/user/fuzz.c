/* A fuzz target. For any frame, there is no access out of bounds, a frame that passes is unchanged,
 * and copies have right checksums. Input: an octet of flags, then the frame.
 *
 * For libFuzzer. With -DCORPUS, a program that runs files and random variations of them:
 * `fuzz VARIATIONS FILE...`.
 */
#include "user.c"

#define VLAN 5

static const __u8 me[16] = {[10] = 0xff, 0xff, 10, 0, 0, 2};
static const __u8 broker_v4[16] = {[10] = 0xff, 0xff, 10, 0, 0, 1};
static const __u8 broker_v6[16] = {0xfd, [15] = 1};

static void add_broker(const __u8 *address, __u16 port, __u8 number, __u8 protocol)
{
	struct endpoint at = {.port = be16(port)};
	struct broker value = {.number = number, .protocol = protocol};

	memcpy(at.address, address, 16);
	for (at.vlan = 0; at.vlan <= VLAN; at.vlan += VLAN) {
		at.port = be16(port);
		mqtick_set("brokers", &at, &value);
		at.port = 0;
		mqtick_set("brokers", &at, &value);
	}
}

static void add_rule(__u8 broker, __u8 kind, __u16 topic, const char *name, __u32 number)
{
	struct rule_key key = {.broker = broker, .kind = kind, .topic_id = be16(topic)};
	struct rule value = {.count = 3, .number = number, .flags = number & 7};

	key.name_length = strlen(name);
	memcpy(key.name, name, key.name_length);
	mqtick_set("rules", &key, &value);
}

static void begin(void)
{
	struct settings settings = {.alive_until_ns = -1, .flags = IN_PATH | STEADY};
	struct hop hop = {.interface = 2, .ttl = 64, .flags = UP};
	__u32 zero = 0, one = 1, number = 0;

	mqtick_reset();
	mqtick_set("all_settings", &zero, &settings);
	mqtick_set("hops", &zero, &hop);
	hop.vlan = VLAN;
	mqtick_set("hops", &one, &hop);
	for (__u32 i = 0; i < 3; i++) {
		struct subscriber to = {.port = be16(6000 + i), .topic_id = be16(i), .kind = i, .hop = i & 1};

		memcpy(to.address, me, 16);
		mqtick_set("subscribers", &i, &to);
	}
	for (int six = 0; six < 2; six++) {
		add_broker(six ? broker_v6 : broker_v4, 1883, six * 2, MQTT_SN);
		add_broker(six ? broker_v6 : broker_v4, 1884, six * 2 + 1, MQTT_UDP);
		for (__u16 topic = 0; topic < 16; topic++)
			add_rule(six * 2, topic % 3, topic, "", number++);
		add_rule(six * 2, SHORT_NAME, 'a' << 8 | 'b', "", number++);
		add_rule(six * 2 + 1, NAME, 0, "mqtick/time", 4);
		add_rule(six * 2 + 1, NAME, 0, "hall/1", 0);
		add_rule(six * 2 + 1, NAME, 0, "hall/2", 3);
		add_rule(six * 2 + 1, NAME, 0, "hall/3", 7);
	}
}

/* Whether the UDP checksum of a copy over IPv4 or IPv6 is right. */
static int checks(const __u8 *copy, __u32 length)
{
	__u32 ip = copy[12] == 0x81 ? 18 : 14, udp, size, sum = IPPROTO_UDP;

	if (length < ip + 28)
		return 0;
	udp = ip + (copy[ip] >> 4 == 4 ? 20 : 40);
	if (length < udp + 8 || udp + (size = load16(copy + udp + 4)) > length)
		return 0;
	for (__u32 at = udp == ip + 20 ? ip + 12 : ip + 8; at < udp; at += 2)
		sum += load16(copy + at);
	sum += size;
	for (__u32 at = 0; at < size; at++)
		sum += at & 1 ? copy[udp + at] : copy[udp + at] << 8;
	return fold(sum) == 0xffff || (!load16(copy + udp + 6) && udp == ip + 20);
}

static __u32 differs(const __u8 *one, const __u8 *other, __u32 length)
{
	__u32 count = 0;

	for (__u32 at = 0; at < length; at++)
		count += one[at] != other[at];
	return count;
}

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size)
{
	static __u8 frame[MOST_FRAME + 4];
	static int begun;
	const __u8 *out;
	__u32 left, now, zero = 0;
	int egress, partial, verdict;

	if (!begun++)
		begin();
	if (size < 1 || size > MOST_FRAME)
		return 0;
	/* Reopen the rules after earlier frames. */
	memset(bpf_map_lookup_elem(&all_seen, &zero), 0, 8);
	memset(bpf_map_lookup_elem(&all_unread, &zero), 0, 8 * (BUCKETS + 1));
	memset(bpf_map_lookup_elem(&rule_counters, &zero), 0, 64 * sizeof(struct rule_counters));
	egress = data[0] & 1;
	memcpy(frame, data + 1, size - 1);
	now = size - 1;
	verdict = mqtick_run(egress, frame, &now, 1000, 2000, &out, &left);
	/* A frame that passes is unchanged, except for a mark. */
	partial = !checks(data + 1, size - 1);
	if (verdict == NEXT && (now != size - 1 || differs(frame, data + 1, now) > 3 ||
				(!partial && !checks(frame, now))))
		abort();
	while (left) {
		__u32 what, length;

		memcpy(&what, out, 4);
		memcpy(&length, out + 4, 4);
		/* A checksum that the network card is to finish stays unfinished. */
		if (what != (__u32)-1 && (length + 4 - (size - 1) > 8 || (!partial && !checks(out + 8, length))))
			abort();
		out += 8 + length;
		left -= 8 + length;
	}
	return 0;
}

#ifdef CORPUS
#include <stdio.h>

int main(int argc, char **argv)
{
	static __u8 kept[MOST_FRAME], data[MOST_FRAME];
	unsigned long runs = 0;

	srand(1);
	for (int i = 2; i < argc; i++) {
		FILE *file = fopen(argv[i], "rb");
		size_t size = file ? fread(kept, 1, sizeof(kept), file) : 0;

		if (!file)
			return 1;
		fclose(file);
		for (int n = atoi(argv[1]); n >= 0 && size; n--, runs++) {
			size_t length = n & 1 ? size : rand() % (size + 1);

			memcpy(data, kept, size);
			for (int change = n ? rand() % 4 : 0; change; change--)
				data[rand() % size] = rand();
			if (n & 2 && size > 43) /* no checksum over IPv4: hides the change */
				data[41] = data[42] = 0;
			LLVMFuzzerTestOneInput(data, length);
		}
	}
	printf("%lu runs, %llu copies\n", runs, (unsigned long long)mqtick_counter(COPIES));
	return 0;
}
#endif
