#include "door.h"

#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <stdexcept>

#include "text.h"

namespace model {
namespace {

constexpr int kBatch = 64;
constexpr size_t kRoom = 2048;  // beyond the longest datagram, so that a longer one is seen
constexpr size_t kTrailer = 16;
constexpr size_t kMostAwaited = 4096, kMostKnown = 65536;
constexpr int32_t kNotKnown = INT32_MIN;
constexpr int kBufferOctets = 4 << 20;
// Who made the stamps, as broker/spec/residence.md numbers them.
constexpr uint8_t kProgram = 1;

uint64_t ns_of(const timespec &time) {
  return uint64_t(time.tv_sec) * 1'000'000'000 + uint64_t(time.tv_nsec);
}

uint64_t big_endian(const uint8_t *at, int octets) {
  uint64_t value = 0;
  for (int i = 0; i < octets; ++i) value = value << 8 | at[i];
  return value;
}

void put_big_endian(uint8_t *at, int octets, uint64_t value) {
  for (int i = octets; i-- > 0; value >>= 8) at[i] = value;
}

sockaddr_in place_of(const Address &address) {
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(address.ip);
  place.sin_port = htons(address.port);
  return place;
}

[[noreturn]] void fail(const std::string &what) {
  throw std::runtime_error(what + " (" + std::strerror(errno) + ").");
}

// The kernel's receive stamp of a datagram, 0 if there is none.
uint64_t receive_stamp(msghdr &header) {
  for (cmsghdr *each = CMSG_FIRSTHDR(&header); each; each = CMSG_NXTHDR(&header, each)) {
    if (each->cmsg_level == SOL_SOCKET && each->cmsg_type == SCM_TIMESTAMPING) {
      scm_timestamping stamps;
      std::memcpy(&stamps, CMSG_DATA(each), sizeof stamps);
      return ns_of(stamps.ts[0]);
    }
  }
  return 0;
}

}  // namespace

uint64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return ns_of(time);
}

Door::Door(const Address &listen) : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0)) {
  if (socket_ < 0) fail("No UDP socket can be made");
  const sockaddr_in place = place_of(listen);
  if (bind(socket_, reinterpret_cast<const sockaddr *>(&place), sizeof place)) {
    fail("Nothing can listen on " + text_of(listen));
  }
  // The kernel gives what it may.
  setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &kBufferOctets, sizeof kBufferOctets);
  setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &kBufferOctets, sizeof kBufferOctets);
  number_from_zero();
}

// Transmit stamps are asked for datagram by datagram, and the kernel numbers those. Whether it
// counts one that it could not send depends on its version: then both begin anew.
void Door::number_from_zero() {
  const int stamps = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
  for (const int more : {0, SOF_TIMESTAMPING_OPT_ID | SOF_TIMESTAMPING_OPT_TSONLY}) {
    const int flags = stamps | more;
    if (setsockopt(socket_, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof flags)) {
      fail("The kernel does not stamp datagrams");
    }
  }
  next_identifier_ = 0;
  awaited_.clear();
}

Door::~Door() { close(socket_); }

void Door::wait(int milliseconds) const {
  pollfd one{socket_, POLLIN, 0};
  poll(&one, 1, milliseconds);
}

size_t Door::receive(Design &design) {
  static uint8_t octets[kBatch][kRoom];
  static char control[kBatch][256];
  mmsghdr messages[kBatch]{};
  iovec pieces[kBatch];
  sockaddr_in from[kBatch];
  for (int i = 0; i < kBatch; ++i) {
    pieces[i] = {octets[i], kRoom};
    msghdr &header = messages[i].msg_hdr;
    header.msg_name = &from[i];
    header.msg_namelen = sizeof from[i];
    header.msg_iov = &pieces[i];
    header.msg_iovlen = 1;
    header.msg_control = control[i];
    header.msg_controllen = sizeof control[i];
  }
  const int count = recvmmsg(socket_, messages, kBatch, MSG_DONTWAIT, nullptr);
  if (count <= 0) return 0;
  size_t given = 0;
  for (int i = 0; i < count; ++i) {
    ++received;
    const size_t length = messages[i].msg_len;
    // No Ethernet frame holds it, and no outer core would put its fragments together.
    if (length > kLongest) {
      ++oversized;
      continue;
    }
    if (length == 0) continue;  // AXI4-Stream has no packet without a word
    uint64_t stamp_ns = receive_stamp(messages[i].msg_hdr);
    if (stamp_ns == 0) {
      ++unstamped;
      stamp_ns = now_ns();
    }
    const Address sender{ntohl(from[i].sin_addr.s_addr), ntohs(from[i].sin_port)};
    design.offer({0, sender, Octets(octets[i], octets[i] + length), stamp_of_ns(stamp_ns)});
    ++given;
  }
  return given;
}

void Door::send(std::deque<Sent> copies) {
  read_transmit_stamps();
  while (!copies.empty()) {
    if (!copies.front().fill) {
      send_plain(copies);
      continue;
    }
    Sent copy = std::move(copies.front());
    copies.pop_front();
    sockaddr_in place = place_of(copy.to);
    iovec piece{copy.octets.data(), copy.octets.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(uint32_t))]{};
    msghdr header{};
    header.msg_name = &place;
    header.msg_namelen = sizeof place;
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr *wish = CMSG_FIRSTHDR(&header);
    wish->cmsg_level = SOL_SOCKET;
    wish->cmsg_type = SO_TIMESTAMPING;
    wish->cmsg_len = CMSG_LEN(sizeof(uint32_t));
    const uint32_t flags = SOF_TIMESTAMPING_TX_SOFTWARE;
    std::memcpy(CMSG_DATA(wish), &flags, sizeof flags);
    if (!state_residence(copy)) header.msg_controllen = 0;  // nobody will ask when it left
    if (sendmsg(socket_, &header, 0) < 0) {
      ++unsent;
      read_transmit_stamps();
      number_from_zero();
    } else {
      ++sent;
    }
  }
}

void Door::send_plain(std::deque<Sent> &copies) {
  mmsghdr messages[kBatch]{};
  iovec pieces[kBatch];
  sockaddr_in places[kBatch];
  unsigned count = 0;
  for (; count < kBatch && count < copies.size() && !copies[count].fill; ++count) {
    places[count] = place_of(copies[count].to);
    pieces[count] = {copies[count].octets.data(), copies[count].octets.size()};
    messages[count].msg_hdr.msg_name = &places[count];
    messages[count].msg_hdr.msg_namelen = sizeof places[count];
    messages[count].msg_hdr.msg_iov = &pieces[count];
    messages[count].msg_hdr.msg_iovlen = 1;
  }
  const int done = sendmmsg(socket_, messages, count, 0);
  // One that cannot be sent is dropped, as a network would; those behind it go with the next call.
  const unsigned gone = done > 0 ? done : 1;
  sent += done > 0 ? done : 0;
  unsent += done > 0 ? 0 : 1;
  copies.erase(copies.begin(), copies.begin() + gone);
}

// The design decided whether the trailer is owned (copy), and has numbered it; only the residence,
// its correction and the source are the host's.
bool Door::state_residence(Sent &copy) {
  if (copy.octets.size() < kTrailer) return false;
  uint8_t *trailer = copy.octets.data() + copy.octets.size() - kTrailer;
  const uint32_t number = big_endian(trailer + 12, 3);
  int32_t correction = kNotKnown;
  Last *last = nullptr;
  if (number && (last_.contains(copy.to) || last_.size() < kMostKnown)) last = &last_[copy.to];
  if (last) {
    const uint32_t after = last->copy == 0xffffff ? 1 : last->copy + 1;
    const int64_t off = int64_t(last->left_ns - last->stated_ns);
    if (last->copy && after == number && last->left_ns && off == int32_t(off)) correction = off;
  }
  const uint64_t leaves_ns = now_ns();
  // The design stated it up to when the copy left the design; add what passed since.
  const uint64_t residence = big_endian(trailer, 8) + stamp_of_ns(leaves_ns) - copy.stamp;
  if (residence >> 63) {  // the clock was set back meanwhile
    put_big_endian(trailer, 8, 0);
    put_big_endian(trailer + 8, 4, uint32_t(kNotKnown));
    put_big_endian(trailer + 12, 4, 0);
    return false;
  }
  put_big_endian(trailer, 8, residence);
  put_big_endian(trailer + 8, 4, uint32_t(correction));
  trailer[15] = std::min(trailer[15], kProgram);
  if (last) {
    *last = {number, leaves_ns, 0, next_identifier_};
    if (awaited_.size() >= kMostAwaited) awaited_.clear();
    awaited_[next_identifier_] = copy.to;
  }
  ++next_identifier_;
  return true;
}

void Door::read_transmit_stamps() {
  for (;;) {
    char control[512];
    msghdr header{};
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    if (recvmsg(socket_, &header, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return;
    uint64_t left_ns = 0;
    std::optional<uint32_t> identifier;
    for (cmsghdr *each = CMSG_FIRSTHDR(&header); each; each = CMSG_NXTHDR(&header, each)) {
      if (each->cmsg_level == SOL_SOCKET && each->cmsg_type == SCM_TIMESTAMPING) {
        scm_timestamping stamps;
        std::memcpy(&stamps, CMSG_DATA(each), sizeof stamps);
        left_ns = ns_of(stamps.ts[0]);
      } else if (each->cmsg_level == SOL_IP && each->cmsg_type == IP_RECVERR) {
        sock_extended_err error;
        std::memcpy(&error, CMSG_DATA(each), sizeof error);
        if (error.ee_origin == SO_EE_ORIGIN_TIMESTAMPING) identifier = error.ee_data;
      }
    }
    if (!identifier) continue;
    const auto found = awaited_.find(*identifier);
    if (found == awaited_.end()) continue;
    Last &last = last_[found->second];
    if (last.identifier == *identifier) last.left_ns = left_ns;
    awaited_.erase(found);
  }
}

}  // namespace model
