/* The tables of broker/spec/acceleration.md, section 1, as the loader writes them. */
#ifndef MQTICK_TABLES_H
#define MQTICK_TABLES_H

#include <linux/types.h>

#define MAX_FRAME 1536
#define MAX_NAME 64
#define MAX_SUBSCRIBERS 4095
#define BUCKETS 256

enum protocol { MQTT_SN = 1, MQTT_UDP = 2 };
enum kind { REGISTERED, PREDEFINED, SHORT_NAME, NAME };
enum rule_flag { TO_BROKER = 1, MARK = 2, RESIDENCE = 4, PASS = 8 };
enum settings_flag { IN_PATH = 1, STEADY = 2 };
enum hop_flag { UP = 1 };
enum reason { MESSAGE, FRAGMENT, HEADER, UNKNOWN_TOPIC };
enum event_flag { AT_EGRESS = 1, FROM_BROKER = 2, KEPT_BACK = 4, RAISES = 8 };

enum counter {
	FRAGMENTS,
	HEADERS,
	LENGTH,
	CHECKSUM,
	QOS,
	SOURCE,
	NO_RULE,
	DISABLED,
	CLOSED,
	WAITING,
	STALE,
	HITS,
	COPIES,
	UNREACHABLE,
	REFUSED,
	TO_BROKER_TOO,
	EVENTS,
	EVENTS_LOST,
	ANSWERS_KEPT_BACK,
	COUNTERS
};

/* IPv4 addresses are ::ffff:a.b.c.d. Ports and topic ids are big endian, all else in host order. */
struct endpoint {
	__u8 address[16];
	__be16 port;
	__u16 vlan;
};

struct broker {
	__u8 number;
	__u8 protocol;
	__u8 zero[2];
};

struct rule_key {
	__u8 publisher[16];
	__be16 port;
	__be16 topic_id;
	__u8 broker;
	__u8 kind;
	__u8 name_length;
	__u8 zero;
	__u8 name[MAX_NAME];
};

struct rule {
	__u32 first;
	__u32 count;
	__u32 number;
	__u32 flags;
	__u64 open;
};

struct rule_counters {
	__u64 slow;
	__u64 hits;
	__u64 copies;
};

struct subscriber {
	__u8 address[16];
	__be16 port;
	__be16 topic_id;
	__u16 hop;
	__u8 kind;
	__u8 zero;
};

struct hop {
	__u32 interface;
	__u8 destination[6];
	__u8 source[6];
	__u8 ttl;
	__u8 flags;
	__u16 vlan;
};

struct settings {
	__u64 alive_until_ns;
	__u64 done;
	__u64 tai_minus_utc_ns;
	__u64 utc_ahead_ns; /* UTC - CLOCK_MONOTONIC; changes only when the clock is set */
	__u32 flags;
	__u32 zero;
};

struct client {
	__u64 heard_ns;
	__u64 served_ns;
	__u32 keep_back;
	__u32 zero;
};

/* The destination of the next frame that the controller injects. */
struct target {
	__u32 interface;
	__u32 flags;
};

struct event {
	__u64 at_ns;
	__u64 seen;
	__u32 interface;
	__u16 vlan;
	__u16 length;
	__u8 broker;
	__u8 protocol;
	__u8 reason;
	__u8 flags;
	__u16 message;
	__u16 zero;
	__u8 frame[MAX_FRAME];
};

#endif
