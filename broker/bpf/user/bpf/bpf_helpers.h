/* The kernel's functions for accelerate.bpf.c, for a build in user space; user.c has them. */
#ifndef MQTICK_USER_BPF_HELPERS_H
#define MQTICK_USER_BPF_HELPERS_H

#include <linux/types.h>

#define SEC(name)
#define __uint(name, value) int (*name)[value]
#define __type(name, value) __typeof__(value) *name

static const __u32 has_tai = 1;

void *bpf_map_lookup_elem(void *map, const void *key);
long bpf_map_update_elem(void *map, const void *key, const void *value, __u64 flags);
__u64 bpf_ktime_get_ns(void);
__u64 mqtick_ktime_get_tai_ns(void);
long bpf_skb_load_bytes(const void *skb, __u32 offset, void *to, __u32 length);
long bpf_skb_store_bytes(struct __sk_buff *skb, __u32 offset, const void *from, __u32 length,
			 __u64 flags);
long bpf_l4_csum_replace(struct __sk_buff *skb, __u32 offset, __u64 from, __u64 to, __u64 flags);
__s64 bpf_csum_diff(__be32 *from, __u32 from_size, __be32 *to, __u32 to_size, __u32 seed);
long bpf_skb_vlan_pop(struct __sk_buff *skb);
long bpf_skb_vlan_push(struct __sk_buff *skb, __be16 protocol, __u16 tci);
long bpf_clone_redirect(struct __sk_buff *skb, __u32 interface, __u64 flags);
long bpf_loop(__u32 times, void *function, void *context, __u64 flags);
long bpf_ringbuf_output(void *map, void *data, __u64 size, __u64 flags);
__u64 bpf_ringbuf_query(void *map, __u64 flags);

#endif
