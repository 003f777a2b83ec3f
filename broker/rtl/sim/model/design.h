// The broker's RTL, compiled by Verilator, with a datagram at a time on either side of it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

class Vmqtick_model;
class VerilatedContext;

namespace model {

constexpr double kCycleNs = 6.4;       // 156.25 MHz
constexpr size_t kLongest = 1472;      // octets of a datagram in one Ethernet frame
constexpr size_t kOverhead = 66;       // octets of preamble, headers, check sequence and gap
constexpr size_t kLeastPayload = 18;   // shorter ones are padded to the minimum frame

using Octets = std::vector<uint8_t>;
using Secret = std::array<uint32_t, 4>;

struct Address {
  uint32_t ip = 0;
  uint16_t port = 0;
  auto operator<=>(const Address &) const = default;
};

struct Received {
  uint64_t cycle = 0;  // when its first word is offered, counted from when the design is ready
  Address from;
  Octets octets;
  uint64_t stamp = 0;  // 2^-16 ns
};

struct Sent {
  uint64_t cycle = 0;  // when its first word was taken
  Address to;
  Octets octets;
  bool fill = false;   // the design filled its trailer
  uint64_t stamp = 0;  // of its first word, which the residence counts to
};

// Units of 2^-16 ns, as the stamps of the boundary have them.
constexpr uint64_t stamp_of_cycle(uint64_t cycle) { return cycle * 4194304 / 10; }
constexpr uint64_t stamp_of_ns(uint64_t ns) { return ns << 16; }

// What the outer core and its link do with the transmitted datagrams. `gbps` 0: takes a word in
// every cycle. Otherwise a datagram begins when the wire has done with the one before.
class Link {
 public:
  explicit Link(unsigned gbps) : each_(gbps * 8) {}
  bool free(uint64_t cycle) const { return each_ == 0 || (cycle + 1) * each_ > until_; }
  void begin(uint64_t cycle, size_t octets);
  void waited() { waited_ = true; }

 private:
  uint64_t each_;       // tenths of an octet that leave in a cycle
  uint64_t until_ = 0;  // when the wire is free, in tenths of an octet
  bool waited_ = false;
};

class Design {
 public:
  // `host_stamps`: its counter is what `set_now` said, at first `now`, and not its cycles: behind
  // real sockets the host's stamps are the only true ones.
  Design(const Secret &secret, unsigned link_gbps, bool host_stamps, uint64_t now = 0);
  ~Design();

  void offer(Received datagram) { waiting_.push_back(std::move(datagram)); }
  size_t waiting() const { return waiting_.size(); }
  // Runs one cycle; true if a word went in or came out.
  bool step();
  // What came out since it was asked for last.
  std::deque<Sent> take();
  uint64_t cycle() const { return cycle_; }
  // What the design's counter says in a cycle, where it counts cycles.
  uint64_t stamp_at(uint64_t cycle) const { return stamp_of_cycle(cycle + clearing_); }
  void set_now(uint64_t stamp) { now_ = stamp; }

 private:
  void drive();
  uint64_t now() const { return host_stamps_ ? now_ : stamp_at(cycle_); }
  bool sample();

  std::unique_ptr<VerilatedContext> context_;
  std::unique_ptr<Vmqtick_model> top_;
  Link link_;
  bool host_stamps_;
  uint64_t cycle_ = 0;
  uint64_t clearing_ = 0;  // cycles that it took to be ready after its reset
  uint64_t now_;
  std::deque<Received> waiting_;
  bool header_in_ = false;
  size_t at_ = 0;  // the next octet of the datagram that is going in
  // Headers that came before their first word: the one after a datagram comes while it leaves.
  std::deque<std::pair<Sent, size_t>> headers_;
  bool began_ = false;
  std::deque<Sent> done_;
};

}  // namespace model
