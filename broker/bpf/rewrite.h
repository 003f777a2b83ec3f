/* Parses a frame, and rewrites it into a copy: broker/spec/acceleration.md, sections 2, 3 and 5.
 *
 * The same code is used in the kernel's program and, for vectors and fuzzing, in a library in user
 * space. The frame's parts are at fixed offsets, because the kernel's verifier can follow these:
 * the Ethernet header always begins at head[2], and the IP header at head[16].
 */
#ifndef MQTICK_REWRITE_H
#define MQTICK_REWRITE_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/types.h>

#include "tables.h"

#define INLINE static __attribute__((always_inline)) inline
#define be16(x) ((__be16)__builtin_bswap16(x)) /* all supported hosts are little endian */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "write be16 for this host");

#define ETHERNET 2
#define IP (ETHERNET + 14)
#define MAX_TOPIC 9 /* octets of a message up to the end of its topic id */
#define MAX_HEAD (IP + 40 + 8 + MAX_TOPIC)
#define MAX_MESSAGE (MAX_FRAME - 14 - 20 - 8)
#define MAX_MQTT_UDP 1472
#define TRAILER 16
#define MAX_RESIDENCE_NS 100000000
#define UNSURE 9 /* 2^-9 of a time may be due to a slew that is not noticed */
#define KERNEL_STAMPS 2
#define MARK_BIT 8 /* Will in MQTT-SN, DUP in mqtt-udp */
#define QOS_3 6

/* What is to be done with a frame. */
enum verdict {
	IGNORE,  /* not for us */
	GONE,	 /* passes, counted: no host accepts it, or it concerns no rule */
	COUNT,   /* passes, counted, and closes its rule */
	REPORT,  /* passes, and is reported */
	PUBLISH, /* its rule is looked up by frame->key */
};

/* Whether the length fields agree. */
enum lengths {
	DROPPED, /* no: no host accepts the frame */
	UNREAD,	 /* no: a host may accept it, but it cannot be read here */
	AGREE,
};

/* The content of the UDP checksum's field. */
enum sum { NO_SUM, WHOLE, UNFINISHED };

/* The content of an arriving frame's trailer. */
enum prior { NO_TRAILER, ZEROS, STATED, NOT_STATED };

struct frame {
	__u8 head[MAX_HEAD + 7]; /* the headers, and all that is rewritten except the trailer */
	__u8 message[MAX_MESSAGE + 2 + 512];
	__u32 l3;  /* octets of the IP header: 20 or 40 */
	__u32 length; /* of the message */
	__u32 topic;  /* offset of flags and topic id in the message; 0: it begins with the flags */
	__u32 trailer; /* offset of the trailer in the message */
	__u32 prior;   /* content of the trailer */
	__u64 residence;
	__u8 prior_source;
	__u8 protocol;
	__u8 reason;  /* of a report */
	__u8 counter; /* of a frame that is counted */
	__u8 unread;  /* it cannot be read: it may be a PUBLISH, or change the receivers */
	__u8 sum;     /* content of the UDP checksum's field */
	__u64 fences;
	struct endpoint from;
	struct endpoint to;
	struct rule_key key;
	__u32 fixed; /* sum of the part under the UDP checksum that is not rewritten */
	__u32 copies; /* results; counted here, where the verifier does not track them */
	__u32 unreachable;
	__u32 refused;
	__u8 first_head[MAX_HEAD + 7]; /* the original, for a frame that passes after its copies */
	__u8 first_trailer[TRAILER];
};

INLINE __u16 load16(const __u8 *at)
{
	return (__u16)at[0] << 8 | at[1];
}

INLINE void store16(__u8 *at, __u16 value)
{
	at[0] = value >> 8;
	at[1] = value;
}

/* For wide unaligned accesses: all supported processors allow them, but clang avoids them. */
typedef __u16 __attribute__((may_alias)) any16;
typedef __u64 __attribute__((may_alias)) any64;

INLINE void copy_octets(void *to, const void *from, __u32 n)
{
	__u8 *out = to;
	const __u8 *in = from;

#pragma unroll
	for (; n >= 8; n -= 8, out += 8, in += 8)
		*(any64 *)out = *(const any64 *)in;
#pragma unroll
	for (; n >= 2; n -= 2, out += 2, in += 2)
		*(any16 *)out = *(const any16 *)in;
	if (n)
		*out = *in;
}

/* Set all but the first n octets of a name's field to zero. */
INLINE void clear_after(__u8 *name, __u32 n)
{
#pragma unroll
	for (__u32 i = 0; i < MAX_NAME; i += 8) {
		any64 *word = (any64 *)(name + i);

		if (n <= i)
			*word = 0;
		else if (n < i + 8)
			*word &= (1ULL << 8 * (n - i)) - 1;
	}
}

INLINE __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* Sum of 16-bit words in host order (RFC 1071 allows either order); n is even. */
INLINE __u32 sum_words(const __u8 *at, __u32 n, __u32 sum)
{
#pragma unroll
	for (__u32 i = 0; i < n; i += 2)
		sum += *(const any16 *)(at + i);
	return sum;
}

INLINE __u32 sum_addresses(const struct frame *frame)
{
	return frame->l3 == 20 ? sum_words(frame->head + IP + 12, 8, 0)
			       : sum_words(frame->head + IP + 8, 32, 0);
}

INLINE __u8 *udp_of(struct frame *frame)
{
	return frame->head + IP + (frame->l3 == 20 ? 20 : 40);
}

INLINE int is_v4(const __u8 address[16])
{
	return !*(const any64 *)address && !*(const any16 *)(address + 8) &&
	       *(const any16 *)(address + 10) == 0xffff;
}

INLINE void map_v4(__u8 address[16], const __u8 *from)
{
	*(any64 *)address = 0;
	*(any16 *)(address + 8) = 0;
	*(any16 *)(address + 10) = 0xffff;
	copy_octets(address + 12, from, 4);
}

/* The octets of the IP header after the Ethernet header at `octets`; 0: it is not IP. */
INLINE __u32 parse_ethernet(const __u8 *octets, __u32 length)
{
	__u16 type = load16(octets + 12);

	if (type == ETH_P_IP && length >= 14 + 20)
		return 20;
	return type == ETH_P_IPV6 && length >= 14 + 40 ? 40 : 0;
}

INLINE enum verdict count(struct frame *frame, enum counter counter, enum verdict verdict)
{
	frame->counter = counter;
	return verdict;
}

/* The frame cannot be parsed with certainty: the broker may take it for anything. */
INLINE enum verdict unread(struct frame *frame, enum reason reason, enum counter counter)
{
	frame->unread = 1;
	frame->counter = counter;
	frame->reason = reason;
	return REPORT;
}

/* Parse the IP header at head[IP]. PUBLISH: a UDP header follows it. */
INLINE enum verdict parse_ip(struct frame *frame)
{
	const __u8 *ip = frame->head + IP;
	__u8 next;

	if (frame->l3 == 20) {
		map_v4(frame->from.address, ip + 12);
		map_v4(frame->to.address, ip + 16);
		if (ip[0] >> 4 != 4)
			return IGNORE;
		if (ip[9] != IPPROTO_UDP)
			return IGNORE;
		if (load16(ip + 6) & 0x3fff)
			return unread(frame, FRAGMENT, FRAGMENTS);
		return ip[0] == 0x45 ? PUBLISH : unread(frame, HEADER, HEADERS);
	}
	if (ip[0] >> 4 != 6)
		return IGNORE;
	copy_octets(frame->from.address, ip + 8, 16);
	copy_octets(frame->to.address, ip + 24, 16);
	next = ip[6];
	if (next == IPPROTO_UDP)
		return PUBLISH;
	if (next == 44)
		return unread(frame, FRAGMENT, FRAGMENTS);
	/* Hop-by-hop, routing, authentication, destination options. */
	return next == 0 || next == 43 || next == 51 || next == 60 ? unread(frame, HEADER, HEADERS)
								   : IGNORE;
}

/* Compare the length fields. `room`: the octets of the frame from the IP header on. */
INLINE enum lengths lengths(struct frame *frame, __u32 room)
{
	const __u8 *ip = frame->head + IP;
	__u32 datagram = frame->l3 == 20 ? load16(ip + 2) : 40 + (__u32)load16(ip + 4);
	__u32 udp = load16(udp_of(frame) + 4);

	/* Over IPv6, a UDP length of 0 stands for the rest of the packet. */
	if (datagram > room || datagram < frame->l3 + 8 || udp > datagram - frame->l3 ||
	    (udp <= 8 && (udp || frame->l3 == 20)))
		return DROPPED;
	if (datagram != frame->l3 + udp || udp - 8 > MAX_MESSAGE || room > MAX_FRAME - 14)
		return UNREAD;
	frame->length = udp - 8;
	return AGREE;
}

INLINE int ip_header_is_right(const struct frame *frame)
{
	return frame->l3 != 20 || fold(sum_words(frame->head + IP, 20, 0)) == 0xffff;
}

/* Sum of the pseudo-header. */
INLINE __u32 sum_pseudo(const struct frame *frame)
{
	return sum_addresses(frame) + be16(IPPROTO_UDP) + be16(frame->length + 8);
}

/* Whether the UDP checksum is right. `sum`: the message's, in host order. */
INLINE int udp_is_right(struct frame *frame, __u32 sum)
{
	const __u8 *udp = udp_of(frame);
	__u32 pseudo = sum_pseudo(frame);
	__u16 field = *(const any16 *)(udp + 6);
	int is_whole = fold(fold(sum) + sum_words(udp, 8, pseudo)) == 0xffff;

	frame->sum = !field ? NO_SUM : field == fold(pseudo) ? UNFINISHED : WHOLE;
	if (!field)
		return frame->l3 == 20;
	/* One frame of 65,536 fits both; then it is not known which one it is. */
	if (frame->sum == UNFINISHED && is_whole)
		frame->counter = CHECKSUM;
	return frame->sum == UNFINISHED || is_whole;
}

/* Whether messages of this source may be copied: a host's address, and no port of a service. */
INLINE int source_is_good(const struct frame *frame)
{
	const __u8 *a = frame->from.address;
	const any64 *half = (const any64 *)a, *to = (const any64 *)frame->to.address;

	if (__builtin_bswap16(frame->from.port) < 1024 || (half[0] == to[0] && half[1] == to[1]))
		return 0;
	if (frame->l3 == 20)
		return a[12] != 0 && a[12] != 127 && a[12] < 224;
	/* Not multicast, unspecified, loopback or IPv4-mapped. */
	return a[0] != 0xff && (half[0] || __builtin_bswap64(half[1]) > 1) && !is_v4(a);
}

INLINE enum verdict parse_mqtt_sn(struct frame *frame)
{
	const __u8 *m = frame->message;
	__u32 at = m[0] == 1 ? 3 : 1;
	__u32 length = at == 1 ? m[0] : load16(m + 1);

	frame->topic = at + 1;
	if (length != frame->length || length <= at)
		return unread(frame, MESSAGE, LENGTH);
	if (m[at] != 0x0c) {
		frame->reason = MESSAGE;
		if (m[at] == 0x0d && length == at + 6 && m[at + 5]) /* PUBACK that refuses */
			return REPORT;
		return m[at] >= 0x0c && m[at] <= 0x10 ? IGNORE : REPORT;
	}
	if (length < at + 6) /* without a topic */
		return count(frame, LENGTH, GONE);
	frame->key.kind = m[at + 1] & 3;
	copy_octets(&frame->key.topic_id, m + at + 2, 2);
	if (at == 3 && length < 256)
		return count(frame, LENGTH, COUNT);
	if (m[at + 1] > SHORT_NAME || load16(m + at + 4))
		return count(frame, QOS, COUNT);
	if (m[at + 6] >> 4 == 2 && length >= at + 6 + 17 && length <= at + 6 + 64)
		frame->trailer = length - TRAILER;
	return PUBLISH;
}

INLINE enum verdict parse_mqtt_udp(struct frame *frame)
{
	const __u8 *m = frame->message;
	__u32 at = 2, remaining = m[1], name;

	if (remaining & 0x80) {
		remaining = (remaining & 0x7f) | (__u32)m[2] << 7;
		at = 3;
	}
	if (frame->length != at + remaining || frame->length > MAX_MQTT_UDP ||
	    (at == 3 && (m[2] > 127 || !m[2])))
		return unread(frame, MESSAGE, LENGTH);
	if (m[0] >> 4 != 3) {
		frame->reason = MESSAGE;
		return m[0] >> 4 >= 4 && m[0] >> 4 <= 7 ? IGNORE : REPORT;
	}
	name = load16(m + at);
	if (!name || name > MAX_NAME || remaining < 2 + name) /* no rule has such a name */
		return count(frame, LENGTH, GONE);
	at += 2;
	if (m[at] == '$') /* concerns only one client and the broker */
		return count(frame, NO_RULE, GONE);
	frame->key.kind = NAME;
	frame->key.name_length = name;
	copy_octets(frame->key.name, m + at, MAX_NAME);
	clear_after(frame->key.name, name);
	if (m[0] & 15)
		return count(frame, QOS, COUNT);
	at += name;
	if (m[at] >> 4 == 2 && frame->length >= at + 17 && frame->length <= at + 64)
		frame->trailer = frame->length - TRAILER;
	return PUBLISH;
}

/* The flags of a PUBLISH. */
INLINE __u8 flags_of(const struct frame *frame)
{
	return frame->topic == 2 ? frame->message[2]
				 : frame->topic ? frame->message[4] : frame->message[0];
}

/* Whether it is of QoS -1. */
INLINE int is_unconnected(const struct frame *frame)
{
	return frame->topic && (flags_of(frame) & 0x60) == 0x60;
}

/* Whether it is of QoS 1 or 2. */
INLINE int is_acknowledged(const struct frame *frame)
{
	__u8 qos = frame->protocol == MQTT_SN ? flags_of(frame) >> 5 & 3
					      : frame->message[0] >> 1 & 3;

	return qos == 1 || qos == 2;
}

/* Write the frame's source into the key. */
INLINE void this_publisher(struct frame *frame)
{
	copy_octets(frame->key.publisher, frame->from.address, 16);
	frame->key.port = frame->from.port;
}

/* Parse the message. PUBLISH: frame->key is complete except for the broker's number. */
INLINE enum verdict parse_message(struct frame *frame)
{
	enum verdict verdict;

	__builtin_memset(&frame->key, 0, sizeof(frame->key));
	frame->topic = frame->trailer = frame->prior = 0;
	if (frame->protocol == MQTT_SN) {
		verdict = parse_mqtt_sn(frame);
	} else {
		verdict = parse_mqtt_udp(frame);
		frame->topic = 0;
	}
	this_publisher(frame);
	if (verdict == PUBLISH && frame->counter != COUNTERS)
		return COUNT;
	if (verdict == PUBLISH && !source_is_good(frame))
		return count(frame, SOURCE, COUNT);
	return verdict;
}

/* Whether a reported frame of the broker may answer the controller's PINGREQ in a client's name. */
INLINE int is_answer(const struct frame *frame)
{
	return !frame->unread && frame->reason == MESSAGE && frame->protocol == MQTT_SN &&
	       frame->message[1] == 0x17;
}

/* Whether a reported frame may change the receivers: the table of section 11. */
INLINE int may_change_receivers(const struct frame *frame, int from_broker)
{
	const __u8 *m = frame->message;
	__u32 at = m[0] == 1 ? 3 : 1;

	if (frame->unread)
		return 1;
	if (frame->reason != MESSAGE)
		return 0;
	/* The broker answers no DISCONNECT, and announces all other changes itself. */
	if (frame->protocol == MQTT_UDP)
		return !from_broker && m[0] == 0xe0;
	switch (m[at]) {
	case 0x0a: /* REGISTER */
	case 0x05: /* CONNACK */
	case 0x0b: /* REGACK */
	case 0x13: /* SUBACK */
		return from_broker;
	case 0x04: /* CONNECT */
	case 0x12: /* SUBSCRIBE */
	case 0x14: /* UNSUBSCRIBE */
	case 0xfe: /* encapsulated */
		return !from_broker;
	case 0x16: /* PINGREQ of a sleeping client */
		return !from_broker && frame->length > at + 1;
	default:
		return m[at] == 0x18; /* DISCONNECT */
	}
}

/* The index of a client's counter in all_unread: the xor of the octets of its address. */
INLINE __u32 bucket(const __u8 address[16])
{
	__u64 all = *(const any64 *)address ^ *(const any64 *)(address + 8);

	all ^= all >> 32;
	all ^= all >> 16;
	return (all ^ all >> 8) & 0xff;
}

/* Change the key to that of a rule for any publisher. */
INLINE void any_publisher(struct rule_key *key)
{
	__builtin_memset(key->publisher, 0, 16);
	key->port = 0;
}

INLINE __u32 trailer_at(const struct frame *frame)
{
	__u32 at = frame->trailer;

#ifdef __bpf__
	asm volatile("" : "+r"(at)); /* or the compiler removes the check that the verifier needs */
#endif
	return at & 2047 & (at < MAX_MESSAGE - TRAILER ? -1 : 0);
}

/* Flags, topic id and the octet after them, so that they are whole words; or the flags alone. */
INLINE __u8 *topic_of(struct frame *frame)
{
	return udp_of(frame) + 8 + (frame->topic == 2 ? 2 : frame->topic ? 4 : 0);
}

/* Sum of the rewritten parts that the UDP checksum covers. */
INLINE __u16 sum_rewritten(struct frame *frame)
{
	__u32 sum = sum_words(udp_of(frame), 4, sum_addresses(frame));

	sum = sum_words(topic_of(frame), 4, sum);
	if (frame->prior) {
		__u16 trailer = fold(sum_words(frame->message + trailer_at(frame), TRAILER, 0));

		sum += frame->trailer & 1 ? __builtin_bswap16(trailer) : trailer;
	}
	return fold(sum);
}

/* Write the UDP checksum. If the network card is to finish it, this is the pseudo-header's sum. */
INLINE void write_sum(struct frame *frame)
{
	any16 *field = (any16 *)(udp_of(frame) + 6);
	__u16 sum;

	if (frame->sum == UNFINISHED) {
		*field = fold(sum_pseudo(frame));
	} else if (frame->sum == WHOLE) {
		sum = ~fold(frame->fixed + sum_rewritten(frame));
		*field = sum ? sum : 0xffff;
	}
}

/* To be called before the first copy: save the original, and read its trailer. */
INLINE void begin_copies(struct frame *frame, __u32 flags)
{
	const __u8 *trailer = frame->message + trailer_at(frame);
	const any64 *half = (const any64 *)trailer;

	copy_octets(udp_of(frame) + 8, frame->message, MAX_TOPIC);
	copy_octets(frame->first_head, frame->head, sizeof(frame->head));
	frame->prior = NO_TRAILER;
	frame->copies = frame->unreachable = frame->refused = 0;
	if ((flags & RESIDENCE) && frame->trailer) {
		copy_octets(frame->first_trailer, trailer, TRAILER);
		frame->residence = __builtin_bswap64(half[0]);
		frame->prior_source = trailer[15];
		frame->prior = !half[0] && !half[1] ? ZEROS
			     : trailer[15] >= 1 && trailer[15] <= 3 ? STATED : NOT_STATED;
	}
	frame->fixed = (__u16)~*(any16 *)(udp_of(frame) + 6) + (__u16)~sum_rewritten(frame);
}

/* Write the trailer of a copy. Times are UTC in ns; 0: not known. */
INLINE void write_trailer(struct frame *frame, __u64 arrival_ns, __u64 now_ns)
{
	__u8 *to = frame->message + trailer_at(frame);
	__u64 spent = now_ns - arrival_ns;
	__u64 total = frame->residence + ((spent - (spent >> UNSURE)) << 16);
	__u8 source = KERNEL_STAMPS;

	if (frame->prior == STATED && frame->prior_source < source)
		source = frame->prior_source;
	if (frame->prior == NOT_STATED || !arrival_ns || !now_ns || now_ns < arrival_ns ||
	    spent >= MAX_RESIDENCE_NS || total < frame->residence)
		total = source = 0;
	*(any64 *)to = __builtin_bswap64(total);
	*(any64 *)(to + 8) = 0x80 | (__u64)source << 56;
}

/* Rewrite the frame into the copy for this subscriber. */
INLINE void rewrite(struct frame *frame, const struct subscriber *to, const struct hop *hop,
		    __u64 arrival_ns, __u64 now_ns)
{
	__u8 *ip = frame->head + IP, *udp = udp_of(frame);

	copy_octets(frame->head + ETHERNET, hop->destination, 6);
	copy_octets(frame->head + ETHERNET + 6, hop->source, 6);
	if (frame->l3 == 20) {
		ip[1] = ip[4] = ip[5] = ip[7] = ip[10] = ip[11] = 0;
		ip[6] = 0x40;
		ip[8] = hop->ttl;
		copy_octets(ip + 12, frame->to.address + 12, 4);
		copy_octets(ip + 16, to->address + 12, 4);
		*(any16 *)(ip + 10) = ~fold(sum_words(ip, 20, 0));
	} else {
		ip[0] = 0x60;
		ip[1] = ip[2] = ip[3] = 0;
		ip[7] = hop->ttl;
		copy_octets(ip + 8, frame->to.address, 16);
		copy_octets(ip + 24, to->address, 16);
	}
	*(any16 *)udp = frame->to.port;
	*(any16 *)(udp + 2) = to->port;
	if (frame->topic) {
		__u8 *topic = topic_of(frame);

		topic[0] = to->kind;
		copy_octets(topic + 1, &to->topic_id, 2);
	}
	if (frame->prior)
		write_trailer(frame, arrival_ns, now_ns);
	write_sum(frame);
}

/* Remove a mark that came from outside: only this program may mark messages. */
INLINE void unmark(struct frame *frame)
{
	begin_copies(frame, 0);
	if (frame->topic)
		*topic_of(frame) &= ~MARK_BIT;
	else
		*topic_of(frame) |= QOS_3; /* brokers refuse QoS 3, as they refuse DUP with QoS 0 */
	write_sum(frame);
}

/* Restore the original for the broker, with a mark if the rule says so. */
INLINE void restore(struct frame *frame, __u32 flags)
{
	copy_octets(frame->head, frame->first_head, sizeof(frame->head));
	if (frame->prior)
		copy_octets(frame->message + trailer_at(frame), frame->first_trailer, TRAILER);
	if (flags & MARK) {
		*topic_of(frame) |= MARK_BIT;
		write_sum(frame);
	}
}

#endif
