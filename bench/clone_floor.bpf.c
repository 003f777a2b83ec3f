/* The least that the kernel takes for a copy: what is published over mqtt-udp is sent back whence it
 * came, to the port of each who has subscribed; nothing else of it is written. For bench/clone_floor.py.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define UDP (ETH_HLEN + sizeof(struct iphdr))
#define MOST 4096
#define SUBSCRIBE 0x82
#define PUBLISH 0x30

static __be16 ports[MOST]; /* of the subscribers */
static __u32 count;

static long one_copy(__u32 number, void *context)
{
	struct __sk_buff *skb = *(struct __sk_buff **)context;

	bpf_skb_store_bytes(skb, UDP + offsetof(struct udphdr, dest), &ports[number % MOST], 2, 0);
	return bpf_clone_redirect(skb, skb->ifindex, 0) != 0;
}

SEC("classifier")
int clone_floor(struct __sk_buff *skb)
{
	struct headers {
		struct ethhdr ethernet;
		struct iphdr ip;
		struct udphdr udp;
		__u8 type; /* first octet of the message */
	} __attribute__((packed)) came, sent;

	if (bpf_skb_load_bytes(skb, 0, &came, sizeof(came)) || came.ip.ihl != 5 ||
	    came.ip.protocol != 17)
		return TC_ACT_UNSPEC;
	if (came.type == SUBSCRIBE)
		ports[count++ % MOST] = came.udp.source;
	if (came.type != PUBLISH)
		return TC_ACT_UNSPEC;
	sent = came;
	__builtin_memcpy(sent.ethernet.h_dest, came.ethernet.h_source, ETH_ALEN);
	__builtin_memcpy(sent.ethernet.h_source, came.ethernet.h_dest, ETH_ALEN);
	sent.ip.saddr = came.ip.daddr;
	sent.ip.daddr = came.ip.saddr;
	sent.udp.source = came.udp.dest;
	sent.udp.check = 0;
	bpf_skb_store_bytes(skb, 0, &sent, sizeof(sent), 0);
	bpf_loop(count, one_copy, &skb, 0);
	return TC_ACT_SHOT;
}

char licence[] SEC("license") = "Apache-2.0";
