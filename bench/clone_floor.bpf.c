/* The least that the kernel takes for a copy: it is sent back whence it came, to the next port, and
 * nothing else of it is written. For bench/clone_floor.py, which says how many, and to what ports.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define UDP (ETH_HLEN + sizeof(struct iphdr))

static long one_copy(__u32 number, void *context)
{
	struct __sk_buff *skb = *(struct __sk_buff **)context;
	__be16 port = bpf_htons(FIRST_PORT + number);

	bpf_skb_store_bytes(skb, UDP + offsetof(struct udphdr, dest), &port, 2, 0);
	return bpf_clone_redirect(skb, skb->ifindex, 0) != 0;
}

SEC("classifier")
int clone_floor(struct __sk_buff *skb)
{
	struct headers {
		struct ethhdr ethernet;
		struct iphdr ip;
		struct udphdr udp;
	} __attribute__((packed)) came, sent;

	if (bpf_skb_load_bytes(skb, 0, &came, sizeof(came)) || came.ip.ihl != 5 ||
	    came.ip.protocol != 17 || came.udp.dest != bpf_htons(TO_PORT))
		return TC_ACT_UNSPEC;
	sent = came;
	__builtin_memcpy(sent.ethernet.h_dest, came.ethernet.h_source, ETH_ALEN);
	__builtin_memcpy(sent.ethernet.h_source, came.ethernet.h_dest, ETH_ALEN);
	sent.ip.saddr = came.ip.daddr;
	sent.ip.daddr = came.ip.saddr;
	sent.udp.check = 0;
	bpf_skb_store_bytes(skb, 0, &sent, sizeof(sent), 0);
	bpf_loop(COPIES, one_copy, &skb, 0);
	return TC_ACT_SHOT;
}

char licence[] SEC("license") = "Apache-2.0";
