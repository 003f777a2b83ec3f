/* The kernel's program as a library, with its own maps, frame and clock. Not thread-safe. */
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>

#include "../accelerate.bpf.c"

#define MOST_FRAME 4096
#define MOST_ENTRIES 512
#define OUTPUT (1 << 24)

struct table {
	const char *name;
	void *map;
	size_t key_size; /* 0: an array */
	size_t value_size;
	size_t count;
	__u8 *keys;
	__u8 *values;
};

#define HASHED(map) {#map, &map, sizeof(*map.key), sizeof(*map.value), 0, NULL, NULL}
#define INDEXED(map) {#map, &map, 0, sizeof(*map.value), 0, NULL, NULL}

static struct table tables[] = {
	HASHED(brokers),       HASHED(rules),	  HASHED(clients),     HASHED(asked),
	INDEXED(subscribers),  INDEXED(hops),	  INDEXED(all_settings), INDEXED(all_seen),
	INDEXED(all_targets),  INDEXED(counters), INDEXED(frames),     INDEXED(reports),
	INDEXED(rule_counters), INDEXED(all_unread),
};
static const size_t table_count = sizeof(tables) / sizeof(*tables);

static struct __sk_buff skb;
static __u8 frame_now[MOST_FRAME];
static __u64 monotonic_ns, tai_ns;
/* each copy: interface, length, octets; each event: 0xffffffff, length, octets */
static __u8 *output;
static size_t output_length;

static struct table *table_of(void *map)
{
	for (size_t i = 0; i < table_count; i++)
		if (tables[i].map == map)
			return &tables[i];
	abort();
}

static void make_room(struct table *table)
{
	if (!table->values) {
		table->values = calloc(MOST_ENTRIES, table->value_size);
		table->keys = calloc(MOST_ENTRIES, table->key_size + 1);
	}
}

void *bpf_map_lookup_elem(void *map, const void *key)
{
	struct table *table = table_of(map);
	__u32 index;

	make_room(table);
	if (!table->key_size) {
		memcpy(&index, key, 4);
		return index < MOST_ENTRIES ? table->values + index * table->value_size : NULL;
	}
	for (size_t i = 0; i < table->count; i++)
		if (!memcmp(table->keys + i * table->key_size, key, table->key_size))
			return table->values + i * table->value_size;
	return NULL;
}

long bpf_map_update_elem(void *map, const void *key, const void *value, __u64 flags)
{
	struct table *table = table_of(map);
	void *place = bpf_map_lookup_elem(map, key);

	(void)flags;
	if (!place) {
		if (table->count == MOST_ENTRIES)
			return -1;
		memcpy(table->keys + table->count * table->key_size, key, table->key_size);
		place = table->values + table->count++ * table->value_size;
	}
	memcpy(place, value, table->value_size);
	return 0;
}

__u64 bpf_ktime_get_ns(void)
{
	return monotonic_ns;
}

__u64 mqtick_ktime_get_tai_ns(void)
{
	return tai_ns;
}

long bpf_skb_load_bytes(const void *of, __u32 offset, void *to, __u32 length)
{
	(void)of;
	if (offset > skb.len || length > skb.len - offset)
		return -1;
	memcpy(to, frame_now + offset, length);
	return 0;
}

long bpf_skb_store_bytes(struct __sk_buff *of, __u32 offset, const void *from, __u32 length,
			 __u64 flags)
{
	(void)of, (void)flags;
	if (offset > skb.len || length > skb.len - offset)
		abort();
	memcpy(frame_now + offset, from, length);
	return 0;
}

long bpf_l4_csum_replace(struct __sk_buff *of, __u32 offset, __u64 from, __u64 to, __u64 flags)
{
	__u16 sum;

	(void)of, (void)from;
	if (offset + 2 > skb.len)
		abort();
	memcpy(&sum, frame_now + offset, 2);
	if (!sum && flags & BPF_F_MARK_MANGLED_0)
		return 0;
	sum = ~fold(fold(to) + (__u16)~sum);
	if (!sum)
		sum = 0xffff;
	memcpy(frame_now + offset, &sum, 2);
	return 0;
}

__s64 bpf_csum_diff(__be32 *from, __u32 from_size, __be32 *to, __u32 to_size, __u32 seed)
{
	__u64 sum = seed;

	(void)from, (void)from_size;
	for (__u32 i = 0; i < to_size / 4; i++)
		sum += to[i];
	while (sum >> 32)
		sum = (sum & 0xffffffff) + (sum >> 32);
	return sum;
}

static long put(__u32 what, const void *octets, __u32 length)
{
	if (output_length + 8 + length > OUTPUT)
		return -1;
	memcpy(output + output_length, &what, 4);
	memcpy(output + output_length + 4, &length, 4);
	memcpy(output + output_length + 8, octets, length);
	output_length += 8 + length;
	return 0;
}

long bpf_skb_vlan_pop(struct __sk_buff *of)
{
	of->vlan_present = of->vlan_tci = 0;
	return 0;
}

long bpf_skb_vlan_push(struct __sk_buff *of, __be16 protocol, __u16 tci)
{
	(void)protocol;
	if (of->vlan_present)
		abort();
	of->vlan_present = 1;
	of->vlan_tci = tci;
	return 0;
}

/* Write the frame as it is on the wire. Returns its length. */
static __u32 on_the_wire(__u8 *to)
{
	__u32 tag = skb.vlan_present ? 4 : 0;

	memcpy(to, frame_now, 12);
	if (tag) {
		to[12] = ETH_P_8021Q >> 8;
		to[13] = ETH_P_8021Q & 255;
		store16(to + 14, skb.vlan_tci);
	}
	memcpy(to + 12 + tag, frame_now + 12, skb.len - 12);
	return skb.len + tag;
}

long bpf_clone_redirect(struct __sk_buff *of, __u32 interface, __u64 flags)
{
	static __u8 wire[MOST_FRAME + 4];

	(void)of, (void)flags;
	return put(interface, wire, on_the_wire(wire));
}

long bpf_loop(__u32 times, void *function, void *context, __u64 flags)
{
	long (*body)(__u32, void *) = (long (*)(__u32, void *))function;
	__u32 done = 0;

	(void)flags;
	while (done < times && !body(done, context))
		done++;
	return done;
}

long bpf_ringbuf_output(void *map, void *data, __u64 size, __u64 flags)
{
	(void)map, (void)flags;
	return put(-1, data, size);
}

/* Here the ring of events is always empty. */
__u64 bpf_ringbuf_query(void *map, __u64 flags)
{
	(void)map, (void)flags;
	return 0;
}

/* Empty all tables. */
void mqtick_reset(void)
{
	for (size_t i = 0; i < table_count; i++) {
		struct table *table = &tables[i];

		make_room(table);
		memset(table->values, 0, MOST_ENTRIES * table->value_size);
		table->count = 0;
	}
	if (!output)
		output = malloc(OUTPUT);
}

/* Write an entry of a table. */
int mqtick_set(const char *name, const void *key, const void *value)
{
	for (size_t i = 0; i < table_count; i++)
		if (!strcmp(tables[i].name, name))
			return bpf_map_update_elem(tables[i].map, key, value, 0);
	return -1;
}

__u64 mqtick_counter(__u32 number)
{
	return *(__u64 *)bpf_map_lookup_elem(&counters, &number);
}

/* The counter of unread frames (section 11) for this publisher's rules; 0: for any publisher's. */
__u64 mqtick_unread(const __u8 *address)
{
	__u32 number = address ? bucket(address) : BUCKETS;

	return *(__u64 *)bpf_map_lookup_elem(&all_unread, &number);
}

__u64 mqtick_slow(__u32 rule)
{
	return ((struct rule_counters *)bpf_map_lookup_elem(&rule_counters, &rule))->slow;
}

/* Run a program on a frame, which is changed and may grow by 4 octets. Returns the program's
 * verdict; `out` gets its copies and events. As in the kernel, the VLAN tag is removed before.
 */
int mqtick_run(int egress, __u8 *frame, __u32 *length, __u64 arrival_ns, __u64 now_ns,
	       const __u8 **out, __u32 *out_length)
{
	__u32 tag = 0;
	int verdict;

	memset(&skb, 0, sizeof(skb));
	output_length = 0;
	*out = output;
	*out_length = 0;
	if (*length > MOST_FRAME || *length < 14)
		return NEXT;
	if (load16(frame + 12) == ETH_P_8021Q && *length >= 18) {
		skb.vlan_present = 1;
		skb.vlan_tci = load16(frame + 14);
		tag = 4;
	}
	memcpy(frame_now, frame, 12);
	memcpy(frame_now + 12, frame + 12 + tag, *length - 12 - tag);
	skb.len = *length - tag;
	skb.pkt_type = frame[0] & 1;
	skb.tstamp = arrival_ns;
	tai_ns = monotonic_ns = now_ns;
	verdict = egress ? mqtick_egress(&skb) : mqtick_ingress(&skb);
	*length = on_the_wire(frame);
	*out_length = output_length;
	return verdict;
}
