/* The data plane of broker/spec/acceleration.md as programs for tc. The one at ingress copies and
 * reports; the one at egress reports the answers of a broker on this host.
 *
 * Needs bpf_loop (Linux 5.17), and no types of the kernel (no CO-RE, no kfuncs), so that it loads
 * into kernels without BTF. Frames are read into a per-CPU buffer and written from there. This is
 * safe: softirqs do not nest, and the egress program ignores frames that arrived at this host.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

#include "rewrite.h"

#define NEXT TC_ACT_UNSPEC /* leave the frame to other programs and the stack */
#define ROOM (1 << 20) /* octets of the ring of events */
#define CHUNK 512	   /* most octets for one bpf_csum_diff */
/* Keeps the compiler from changing how a bound is checked, which the verifier has to follow. The
 * verifier of Linux 6.1 learns no minimum from a comparison with 0, so lengths are compared with
 * larger values.
 */
#define LEAVE_AS_IT_IS(value) asm volatile("" : "+r"(value))

#ifdef __bpf__
static __u64 (*mqtick_ktime_get_tai_ns)(void) = (void *)208; /* Linux 6.1 */
volatile const __u32 has_tai = 0;
#endif

/* indices of all_seen; UNTOLD: increments of SEEN without an event */
enum seen { SEEN, UNTOLD, CHANGES };

#define TABLE(name, kind, entries, key_type, value_type) \
	struct {                                         \
		__uint(type, BPF_MAP_TYPE_##kind);       \
		__uint(max_entries, entries);            \
		__type(key, key_type);                   \
		__type(value, value_type);               \
	} name SEC(".maps")

TABLE(brokers, HASH, 64, struct endpoint, struct broker);
TABLE(subscribers, ARRAY, 65536, __u32, struct subscriber);
TABLE(hops, ARRAY, 16384, __u32, struct hop);
TABLE(clients, HASH, 16384, struct endpoint, struct client);
TABLE(asked, LRU_HASH, 4096, struct rule_key, __u64);
TABLE(all_seen, ARRAY, 3, __u32, __u64);
TABLE(all_unread, ARRAY, BUCKETS + 1, __u32, __u64); /* the last one: all frames */
TABLE(all_targets, ARRAY, 1, __u32, struct target);
TABLE(all_settings, ARRAY, 1, __u32, struct settings);
TABLE(rule_counters, ARRAY, 16384, __u32, struct rule_counters);
TABLE(counters, PERCPU_ARRAY, COUNTERS, __u32, __u64);
TABLE(frames, PERCPU_ARRAY, 1, __u32, struct frame);
TABLE(reports, PERCPU_ARRAY, 1, __u32, struct event);

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct rule_key);
	__type(value, struct rule);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, ROOM);
} events SEC(".maps");

INLINE void add(__u32 counter, __u64 n)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &counter);

	if (value)
		*value += n;
}

/* Read the message, and verify the UDP checksum. */
INLINE int load_message(struct __sk_buff *skb, struct frame *frame)
{
	__u32 length = frame->length - 1;
	__s64 sum = 0;

	LEAVE_AS_IT_IS(length);
	if (length >= MAX_MESSAGE)
		return 0;
	length++;
	LEAVE_AS_IT_IS(length);
	if (bpf_skb_load_bytes(skb, 14 + frame->l3 + 8, frame->message, length))
		return 0;
	__builtin_memset(frame->message + length, 0, 8);
#pragma unroll
	for (__u32 at = 0; at < 3 * CHUNK; at += CHUNK) {
		__u32 chunk = (length + 3 - at) & ~3;

		if (length <= at)
			break;
		if (chunk > CHUNK)
			chunk = CHUNK;
		LEAVE_AS_IT_IS(chunk);
		if (chunk > CHUNK)
			break;
		sum = bpf_csum_diff(0, 0, (__be32 *)(frame->message + at), chunk, sum);
		if (sum < 0)
			return 0;
	}
	return udp_is_right(frame, fold(sum));
}

struct who {
	struct broker broker;
	__u8 from_broker;
};

/* Find the broker that the frame goes to, or, if `from_broker`, comes from. */
INLINE int find_broker(const struct frame *frame, struct who *who)
{
	const struct broker *found = bpf_map_lookup_elem(&brokers, &frame->to);

	who->from_broker = !found;
	if (!found)
		found = bpf_map_lookup_elem(&brokers, &frame->from);
	if (!found)
		return 0;
	who->broker = *found;
	return 1;
}

/* Parse the frame, and decide what is to be done with it. */
INLINE enum verdict examine(struct __sk_buff *skb, struct frame *frame, struct who *who)
{
	__u16 vlan = skb->vlan_present ? skb->vlan_tci & 0xfff : 0;
	enum verdict verdict;
	__u8 *udp;

	if (bpf_skb_load_bytes(skb, 0, frame->head + ETHERNET, 14))
		return IGNORE;
	frame->l3 = parse_ethernet(frame->head + ETHERNET, skb->len);
	if (!frame->l3)
		return IGNORE;
	if (frame->l3 == 20) {
		if (bpf_skb_load_bytes(skb, 14, frame->head + IP, 20))
			return IGNORE;
	} else {
		frame->l3 = 40;
		if (bpf_skb_load_bytes(skb, 14, frame->head + IP, 40))
			return IGNORE;
	}
	frame->from.vlan = frame->to.vlan = vlan;
	frame->from.port = frame->to.port = 0;
	frame->unread = 0;
	frame->counter = COUNTERS;
	verdict = parse_ip(frame);
	if (verdict == PUBLISH && skb->gso_size) /* several datagrams in one frame */
		verdict = unread(frame, HEADER, HEADERS);
	if (verdict != PUBLISH)
		return verdict == REPORT && find_broker(frame, who) ? REPORT : IGNORE;
	udp = udp_of(frame);
	if (bpf_skb_load_bytes(skb, 14 + frame->l3, udp, 8))
		return IGNORE;
	copy_octets(&frame->from.port, udp, 2);
	copy_octets(&frame->to.port, udp + 2, 2);
	if (!find_broker(frame, who))
		return IGNORE;
	switch (lengths(frame, skb->len - 14)) {
	case DROPPED:
		return count(frame, LENGTH, GONE);
	case UNREAD:
		return unread(frame, HEADER, LENGTH);
	default:
		break;
	}
	if (!ip_header_is_right(frame) || !load_message(skb, frame))
		return count(frame, CHECKSUM, GONE);
	frame->protocol = who->broker.protocol;
	return parse_message(frame);
}

/* Whether this answers a PINGREQ of the controller, so that the client must not get it. Other
 * processors may count down at the same time: at each turn one of them succeeds.
 */
INLINE int is_kept_back(const struct frame *frame)
{
	struct client *client;

	if (!is_answer(frame))
		return 0;
	client = bpf_map_lookup_elem(&clients, &frame->to);
	if (!client)
		return 0;
	for (int turn = 0; turn < 16; turn++) {
		__u32 left = *(volatile __u32 *)&client->keep_back;

		if (!left)
			return 0;
		if (__sync_val_compare_and_swap(&client->keep_back, left, left - 1) == left) {
			add(ANSWERS_KEPT_BACK, 1);
			return 1;
		}
	}
	return 0;
}

/* Increment a counter that all processors share. Returns the new value. */
INLINE __u64 count_up(void *table, __u32 number)
{
	__u64 *value = bpf_map_lookup_elem(table, &number);

	return value ? __sync_fetch_and_add(value, 1) + 1 : 0;
}

INLINE __u64 read_now(void *table, __u32 number)
{
	const volatile __u64 *value = bpf_map_lookup_elem(table, &number);

	return value ? *value : 0;
}

/* Close the rules of this host's publishers, and the rules for any publisher. */
INLINE void close_rules_of(const struct frame *frame)
{
	count_up(&all_unread, bucket(frame->from.address));
	count_up(&all_unread, BUCKETS);
}

INLINE int tell(struct __sk_buff *skb, const struct frame *frame, const struct who *who, __u8 flags)
{
	__u32 zero = 0, length = skb->len;
	struct event *event = bpf_map_lookup_elem(&reports, &zero);
	int verdict = NEXT;

	if (!event)
		return verdict;
	if (who->from_broker) {
		flags |= FROM_BROKER;
		if (is_kept_back(frame)) {
			flags |= KEPT_BACK;
			verdict = TC_ACT_SHOT;
		}
	}
	/* All of this has to happen before the frame passes. */
	if (may_change_receivers(frame, who->from_broker)) {
		flags |= RAISES;
		event->seen = count_up(&all_seen, SEEN);
	} else {
		event->seen = read_now(&all_seen, SEEN);
	}
	if (frame->unread) {
		add(frame->counter, 1);
		if (!who->from_broker) /* it may be a PUBLISH, which later ones must not overtake */
			close_rules_of(frame);
	}
	event->at_ns = bpf_ktime_get_ns();
	event->interface = skb->ifindex;
	event->vlan = frame->to.vlan;
	event->broker = who->broker.number;
	event->protocol = who->broker.protocol;
	event->reason = frame->reason;
	event->flags = flags;
	event->message = frame->reason == MESSAGE || frame->reason == UNKNOWN_TOPIC
			       ? 14 + frame->l3 + 8 : 0;
	LEAVE_AS_IT_IS(length);
	if (length > MAX_FRAME)
		length = MAX_FRAME;
	event->length = length;
	add(EVENTS, 1);
	if (length < ETH_HLEN || bpf_skb_load_bytes(skb, 0, event->frame, length) ||
	    bpf_ringbuf_output(&events, event, sizeof(*event) - MAX_FRAME + length, 0)) {
		if (flags & RAISES)
			count_up(&all_seen, UNTOLD);
		add(EVENTS_LOST, 1);
	}
	return verdict;
}

/* Write the changes of rewrite() or restore() to the kernel's frame, most of them in one call. */
INLINE void write_back(struct __sk_buff *skb, struct frame *frame)
{
	__u32 length = 14 + frame->l3 + 8 + (frame->topic ? frame->topic + 5 : 2);

	LEAVE_AS_IT_IS(length);
	if (length < ETH_HLEN || length > MAX_HEAD - ETHERNET)
		return;
	bpf_skb_store_bytes(skb, 0, frame->head + ETHERNET, length, BPF_F_RECOMPUTE_CSUM);
	if (frame->prior)
		bpf_skb_store_bytes(skb, 14 + frame->l3 + 8 + frame->trailer,
				    frame->message + trailer_at(frame), TRAILER,
				    BPF_F_RECOMPUTE_CSUM);
}

/* Replace the frame's VLAN tag; 0: none. */
INLINE int retag(struct __sk_buff *skb, __u32 from, __u32 to, __u32 priority)
{
	if (from && bpf_skb_vlan_pop(skb))
		return 0;
	return !to || !bpf_skb_vlan_push(skb, be16(ETH_P_8021Q), to | priority);
}

struct copying {
	struct __sk_buff *skb;
	struct frame *frame;
	__u64 arrival_ns;
	__u64 tai_minus_utc_ns;
	__u64 utc_ahead_ns;
	__u32 is_steady;
	__u32 first;
	__u32 vlan; /* the frame's present one */
	__u32 priority;
};

/* The present time in UTC. It is read in two ways. If the clock was set since the frame's arrival,
 * one of them is too late, so the earlier one is taken.
 */
INLINE __u64 clock_now(const struct copying *copying)
{
	__u64 utc_ns = mqtick_ktime_get_tai_ns() - copying->tai_minus_utc_ns;
	__u64 steady_ns = bpf_ktime_get_ns() + copying->utc_ahead_ns;

	return steady_ns < utc_ns ? steady_ns : utc_ns;
}

static long one_copy(__u32 number, void *context)
{
	struct copying *copying = context;
	struct frame *frame = copying->frame;
	__u32 at = copying->first + number, hop_number;
	const struct subscriber *to = bpf_map_lookup_elem(&subscribers, &at);
	const struct hop *hop;
	__u64 now_ns = 0;

	if (!to)
		return 1;
	hop_number = to->hop;
	hop = bpf_map_lookup_elem(&hops, &hop_number);
	if (!hop || !(hop->flags & UP)) {
		frame->unreachable++;
		return 0;
	}
	if (has_tai && copying->is_steady && frame->prior)
		now_ns = clock_now(copying);
	if (hop->vlan != copying->vlan) {
		__u32 before = copying->vlan;

		copying->vlan = hop->vlan;
		if (!retag(copying->skb, before, hop->vlan, copying->priority))
			return 1;
	}
	rewrite(frame, to, hop, copying->arrival_ns, now_ns);
	write_back(copying->skb, frame);
	if (bpf_clone_redirect(copying->skb, hop->interface, 0))
		frame->refused++;
	else
		frame->copies++;
	return 0;
}

INLINE const struct rule *find_rule(struct frame *frame)
{
	const struct rule *rule = bpf_map_lookup_elem(&rules, &frame->key);

	if (!rule) {
		any_publisher(&frame->key);
		rule = bpf_map_lookup_elem(&rules, &frame->key);
	}
	return rule;
}

/* Whether the controller is to be told of a topic without a rule: once a second. */
INLINE int ask(const struct rule_key *key)
{
	__u64 now_ns = bpf_ktime_get_ns(), *last_ns = bpf_map_lookup_elem(&asked, key);

	if (last_ns && now_ns - *last_ns < 1000000000)
		return 0;
	bpf_map_update_elem(&asked, key, &now_ns, BPF_ANY);
	return 1;
}

/* What was read before the rule. */
struct before {
	__u64 done;
	__u64 changes;
};

/* A memory barrier, on any processor: earlier reads happen before later ones. */
INLINE void fence(struct frame *frame)
{
	if (__sync_fetch_and_add(&frame->fences, 1) == (__u64)-1)
		asm volatile("" ::: "memory");
	asm volatile("" ::: "memory");
}

INLINE struct before before_the_rule(struct frame *frame, const volatile struct settings *settings)
{
	struct before before = {
		.changes = read_now(&all_seen, CHANGES),
		.done = settings->done,
	};

	fence(frame);
	return before;
}

/* Why a frame that has a rule is not copied; COUNTERS: it is copied. If `seen`, which is read last,
 * equals `done`, which was read first, all packets seen had been processed when the rule was read.
 * If `changes` is the same and even, the rule was not being written then.
 */
INLINE enum counter hindrance(const struct __sk_buff *skb, struct frame *frame,
			      const struct rule *rule, __u64 slow, struct before before,
			      const volatile struct settings *settings)
{
	int is_open;

	if (frame->counter != COUNTERS)
		return frame->counter;
	if (skb->pkt_type == 1 || skb->pkt_type == 2) /* broadcast, multicast */
		return SOURCE;
	if (rule->flags & PASS)
		return DISABLED;
	slow += read_now(&all_unread, frame->key.port ? bucket(frame->key.publisher) : BUCKETS);
	is_open = rule->open == slow;
	fence(frame);
	if (before.changes & 1 || read_now(&all_seen, CHANGES) != before.changes) {
		close_rules_of(frame); /* the counters may belong to another rule */
		return WAITING;
	}
	if (read_now(&all_seen, SEEN) != before.done)
		return WAITING;
	if (!is_open)
		return CLOSED;
	return bpf_ktime_get_ns() < settings->alive_until_ns ? COUNTERS : STALE;
}

/* Report a PUBLISH whose topic has no rule or should lose it: once a second. Those of QoS 1 or 2
 * are limited separately, because the rule has to go even if others were reported just now.
 */
INLINE int tell_of_publish(struct __sk_buff *skb, struct frame *frame, const struct who *who)
{
	frame->reason = UNKNOWN_TOPIC;
	this_publisher(frame);
	frame->key.zero = is_acknowledged(frame); /* a limit of its own; the key ends here */
	/* Leave room for events that are not repeated. */
	if (!frame->key.zero && bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > ROOM / 2)
		return NEXT;
	return ask(&frame->key) ? tell(skb, frame, who, 0) : NEXT;
}

/* Note that the broker has sent a PUBLISH to a client. */
INLINE void served(const struct frame *frame)
{
	struct client *client = bpf_map_lookup_elem(&clients, &frame->to);

	if (client)
		client->served_ns = bpf_ktime_get_ns();
}

/* Note that the client is alive. For brokers, a PUBLISH with QoS -1 is no sign of life. */
INLINE void heard(const struct frame *frame, enum verdict verdict)
{
	struct client *client = bpf_map_lookup_elem(&clients, &frame->from);
	int is_publish = verdict == PUBLISH || verdict == COUNT;

	if (client && !(is_publish && is_unconnected(frame)))
		client->heard_ns = bpf_ktime_get_ns();
}

/* Execute the verdict. */
INLINE int act(struct __sk_buff *skb, struct frame *frame, const struct who *who, enum verdict verdict,
	       const volatile struct settings *settings)
{
	struct copying copying = {.skb = skb, .frame = frame};
	struct rule_counters *of_rule;
	const struct rule *rule;
	enum counter counter = frame->counter;
	__u32 flags, first, number, count, vlan;
	struct before before;
	__u64 slow;

	if (verdict == REPORT)
		return tell(skb, frame, who, 0);
	if (who->from_broker) {
		served(frame);
		return NEXT;
	}
	if (flags_of(frame) & MARK_BIT) {
		unmark(frame);
		write_back(skb, frame);
	}
	frame->key.broker = who->broker.number;
	before = before_the_rule(frame, settings);
	rule = find_rule(frame);
	if (!rule) {
		add(counter == COUNTERS ? NO_RULE : counter, 1);
		return verdict == PUBLISH || is_acknowledged(frame)
			       ? tell_of_publish(skb, frame, who) : NEXT;
	}
	flags = rule->flags;
	number = rule->number;
	count = rule->count;
	of_rule = bpf_map_lookup_elem(&rule_counters, &number);
	if (!of_rule)
		return NEXT;
	first = rule->first;
	slow = of_rule->slow;
	counter = hindrance(skb, frame, rule, slow, before, settings);
	if (counter != COUNTERS) {
		add(counter, 1);
		__sync_fetch_and_add(&of_rule->slow, 1);
		return is_acknowledged(frame)
			       ? tell_of_publish(skb, frame, who) : NEXT;
	}
	copying.first = first;
	copying.arrival_ns = skb->tstamp;
	copying.tai_minus_utc_ns = settings->tai_minus_utc_ns;
	copying.utc_ahead_ns = settings->utc_ahead_ns;
	copying.is_steady = settings->flags & STEADY;
	copying.vlan = vlan = frame->to.vlan;
	copying.priority = skb->vlan_present ? skb->vlan_tci & 0xf000 : 0;
	begin_copies(frame, flags);
	bpf_loop(count & MAX_SUBSCRIBERS, one_copy, &copying, 0);

	add(HITS, 1);
	add(COPIES, frame->copies);
	add(UNREACHABLE, frame->unreachable);
	add(REFUSED, frame->refused);
	__sync_fetch_and_add(&of_rule->hits, 1);
	__sync_fetch_and_add(&of_rule->copies, frame->copies);
	if (!(flags & TO_BROKER))
		return TC_ACT_SHOT;
	add(TO_BROKER_TOO, 1);
	if (copying.vlan != vlan && !retag(skb, copying.vlan, vlan, copying.priority))
		return TC_ACT_SHOT;
	restore(frame, flags);
	write_back(skb, frame);
	return NEXT;
}

/* Marks frames that the controller sends in a client's name: they are not processed. */
#define INJECTED 0x6d717469

SEC("classifier")
int mqtick_ingress(struct __sk_buff *skb)
{
	const volatile struct settings *settings;
	enum verdict verdict;
	struct frame *frame;
	struct who who;
	__u32 zero = 0;
	int action;

	settings = bpf_map_lookup_elem(&all_settings, &zero);
	frame = bpf_map_lookup_elem(&frames, &zero);
	if (!settings || !frame || skb->mark == INJECTED)
		return NEXT;
	if (skb->pkt_type == 3 /* PACKET_OTHERHOST */ && !(settings->flags & IN_PATH))
		return NEXT;
	verdict = examine(skb, frame, &who);
	if (verdict == IGNORE)
		return NEXT;
	if (verdict == GONE) {
		if (!who.from_broker)
			add(frame->counter, 1);
		return NEXT;
	}
	action = act(skb, frame, &who, verdict, settings);
	heard(frame, verdict); /* last, so that copies do not wait for it */
	return action;
}

SEC("classifier")
int mqtick_egress(struct __sk_buff *skb)
{
	enum verdict verdict;
	struct frame *frame;
	struct who who;
	__u32 zero = 0;

	/* Frames that arrived at this host were processed at ingress; their copies are ours. */
	if (skb->ingress_ifindex)
		return NEXT;
	frame = bpf_map_lookup_elem(&frames, &zero);
	if (!frame)
		return NEXT;
	verdict = examine(skb, frame, &who);
	if (verdict == IGNORE || !who.from_broker)
		return NEXT;
	if (verdict == REPORT)
		return tell(skb, frame, &who, AT_EGRESS);
	served(frame);
	return NEXT;
}

/* Run by the controller, not attached: sends the controller's frame out of an interface, or injects
 * it as if it had arrived there.
 */
SEC("classifier")
int mqtick_inject(struct __sk_buff *skb)
{
	__u32 zero = 0;
	const struct target *target = bpf_map_lookup_elem(&all_targets, &zero);

	skb->mark = INJECTED;
	return target ? bpf_clone_redirect(skb, target->interface, target->flags) : -1;
}

char licence[] SEC("license") = "Apache-2.0";
