// mqtick_bench.sv behind a pipe: bursts of random datagrams in, all that left for them out.
//
// A command is a letter and what follows it; numbers are little-endian.
//
//   R secret:16                             reset
//   J time:8                                the broker's counter jumps, if it is not there yet
//   P header:1 word:1                       of 256 cycles, in so many receivers are not ready
//   D flags:1 gaps:1 ip:4 port:2 said:2 octets:2 ...
//                                           a datagram of the next burst. Flags: 1 damaged, 2 its
//                                           header goes first; of 256, so many gaps in its words
//   Q                                       send the burst, wait until nothing is left to do
//   X cycles:2                              send the burst, stop after so many cycles
//   W at:2 value:4                          write a register
//   C at:2                                  read one
//
// Q is answered by what: 1 (0 good, 1 it hangs, 2 the stream is broken), now: 8, a stamp of 8 for
// each datagram of the burst, then what left, each ip:4 port:2 fill:1 left:8 octets:2 and these;
// before all that its length: 4. R is answered by now: 8, C by its value: 4, W by its response: 4.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "Vbursts.h"
#include "verilated.h"

namespace {

constexpr uint64_t kHangs = 1'000'000;  // cycles in which nothing moves
enum What : uint8_t { kGood, kHang, kBroken };

struct Datagram {
  bool damaged, header_first;
  uint8_t gaps;
  uint32_t ip;
  uint16_t port, said;
  std::vector<uint8_t> octets;
};

struct Header {
  uint32_t ip;
  uint16_t port, length;
  bool fill;
};

template <typename T>
T read() {
  T value;
  if (fread(&value, sizeof value, 1, stdin) != 1) exit(1);
  return value;
}

class Out {
 public:
  template <typename T>
  void put(T value) {
    const auto *from = reinterpret_cast<const uint8_t *>(&value);
    octets_.insert(octets_.end(), from, from + sizeof value);
  }
  void put(const std::vector<uint8_t> &more) {
    octets_.insert(octets_.end(), more.begin(), more.end());
  }
  size_t size() const { return octets_.size(); }
  void clear() { octets_.clear(); }
  void send() {
    fwrite(octets_.data(), 1, octets_.size(), stdout);
    octets_.clear();
  }

 private:
  std::vector<uint8_t> octets_;
};

class Bench {
 public:
  Bench() : top_(std::make_unique<Vbursts>(&context_)) { context_.randReset(2); }
  ~Bench() { top_->final(); }

  uint64_t now() const { return top_->now; }

  bool reset(const uint8_t *secret) {
    burst_.clear();
    begin();
    top_->rst = 1;
    top_->rx_hdr_valid = top_->rx_tvalid = top_->rx_tuser = 0;
    top_->s_axil_awvalid = top_->s_axil_wvalid = top_->s_axil_arvalid = 0;
    top_->s_axil_bready = top_->s_axil_rready = top_->seed_valid = 1;
    top_->s_axil_wstrb = 15;
    memcpy(&top_->seed[0], secret, 16);
    top_->jump = 1;
    top_->jump_to = 0;
    step(4);
    top_->rst = 0;
    step(2);
    top_->jump = 0;
    headers_.clear();
    octets_.clear();
    out_.clear();
    what_ = kGood;
    for (uint64_t i = 0; i < kHangs; ++i) {
      if (top_->rx_hdr_ready) return true;
      step(1);
    }
    return false;
  }

  void jump(uint64_t to) {
    if (to <= now()) return;
    top_->jump = 1;
    top_->jump_to = to;
    step(1);
    top_->jump = 0;
    step(60);
  }

  void pressure(uint8_t header, uint8_t word) {
    top_->hdr_pressure = header;
    top_->word_pressure = word;
  }

  void add(Datagram datagram) { burst_.push_back(std::move(datagram)); }

  // Sends the burst; with `cycles`, only for so long.
  void run(uint64_t cycles = 0) {
    stamps_.clear();
    still_ = 0;
    for (uint64_t i = 0; cycles == 0 || i < cycles; ++i) {
      if (still_ == kHangs) {
        what_ = kHang;
        return;
      }
      const bool sent = burst_.empty();
      step(1);
      // Quiet is what it has been for many cycles: not before the last word was taken.
      if (cycles == 0 && sent && burst_.empty() && top_->quiet) return;
    }
  }

  void answer() {
    Out all;
    all.put(static_cast<uint32_t>(9 + 8 * stamps_.size() + out_.size()));
    all.put(static_cast<uint8_t>(what_));
    all.put(now());
    for (const uint64_t stamp : stamps_) all.put(stamp);
    all.send();
    out_.send();
  }

  uint32_t write(uint16_t at, uint32_t value) {
    top_->s_axil_awaddr = at;
    top_->s_axil_wdata = value;
    top_->s_axil_awvalid = top_->s_axil_wvalid = 1;
    until(top_->s_axil_awready);
    top_->s_axil_awvalid = top_->s_axil_wvalid = 0;
    until(top_->s_axil_bvalid);
    return top_->s_axil_bresp;
  }

  uint32_t load(uint16_t at) {
    top_->s_axil_araddr = at;
    top_->s_axil_arvalid = 1;
    until(top_->s_axil_arready);
    top_->s_axil_arvalid = 0;
    until(top_->s_axil_rvalid);
    return value_;
  }

 private:
  // Runs until the cycle in which this was high is over.
  void until(const uint8_t &ready) {
    for (uint64_t i = 0; i < kHangs; ++i) {
      if (cycle(&ready)) return;
    }
    what_ = kHang;
  }

  void step(int cycles) {
    for (int i = 0; i < cycles; ++i) cycle();
  }

  // Runs one; tells whether `ready` was high in it.
  bool cycle(const uint8_t *ready = nullptr) {
    if (!top_->rst) drive();
    top_->clk = 0;
    top_->eval();
    const bool high = ready && *ready;
    const bool header = top_->rx_hdr_valid && top_->rx_hdr_ready;
    const bool word = top_->rx_tvalid && top_->rx_tready;
    value_ = top_->s_axil_rdata;
    const bool moves = header || word || (top_->tx_hdr_valid && top_->tx_hdr_ready) ||
                       (top_->tx_tvalid && top_->tx_tready);
    still_ = moves ? 0 : still_ + 1;
    if (!top_->rst) collect();
    top_->clk = 1;
    top_->eval();
    if (header) {
      top_->rx_hdr_valid = 0;
      header_in_ = true;
    }
    if (word) {
      at_ += 8;
      words_in_ = top_->rx_tlast;
      top_->rx_tvalid = top_->rx_tuser = 0;
    }
    if (header_in_ && words_in_) {
      burst_.pop_front();
      begin();
    }
    return high;
  }

  void begin() {
    begun_ = header_in_ = words_in_ = false;
    at_ = 0;
  }

  // Of 256 times, in so many.
  bool chance(uint8_t of) {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return static_cast<uint8_t>(random_ >> 24) < of;
  }

  void drive() {
    if (burst_.empty()) return;
    const Datagram &in = burst_.front();
    if (!begun_) {
      if (chance(in.gaps)) return;
      begun_ = true;
      top_->rx_src_ip = in.ip;
      top_->rx_src_port = in.port;
      top_->rx_length = in.said;
      top_->rx_stamp = now();
      top_->rx_hdr_valid = 1;
      stamps_.push_back(now());
    }
    if (top_->rx_tvalid || words_in_ || (in.header_first && !header_in_) || chance(in.gaps)) return;
    const size_t count = std::min<size_t>(8, in.octets.size() - at_);
    uint64_t word = 0;
    memcpy(&word, in.octets.data() + at_, count);
    top_->rx_tdata = word;
    top_->rx_tkeep = (1u << count) - 1;
    top_->rx_tlast = at_ + count == in.octets.size();
    top_->rx_tuser = top_->rx_tlast && in.damaged;
    top_->rx_tvalid = 1;
  }

  void collect() {
    if (top_->tx_hdr_valid && top_->tx_hdr_ready) {
      headers_.push_back({top_->tx_dst_ip, static_cast<uint16_t>(top_->tx_dst_port),
                          static_cast<uint16_t>(top_->tx_length), top_->tx_fill != 0});
    }
    if (!top_->tx_tvalid || !top_->tx_tready) return;
    if (octets_.empty()) left_ = now();
    int count = 0;
    while (count < 8 && (top_->tx_tkeep >> count & 1)) ++count;
    if (top_->tx_tkeep != (1u << count) - 1 || count == 0 || (count < 8 && !top_->tx_tlast)) {
      what_ = kBroken;
    }
    for (int i = 0; i < count; ++i) octets_.push_back(top_->tx_tdata >> (8 * i));
    if (!top_->tx_tlast) return;
    if (headers_.empty() || headers_.front().length != octets_.size()) what_ = kBroken;
    if (!headers_.empty()) {
      const Header header = headers_.front();
      headers_.pop_front();
      out_.put(header.ip);
      out_.put(header.port);
      out_.put(static_cast<uint8_t>(header.fill));
      out_.put(left_);
      out_.put(static_cast<uint16_t>(octets_.size()));
      out_.put(octets_);
    }
    octets_.clear();
  }

  VerilatedContext context_;
  std::unique_ptr<Vbursts> top_;
  std::deque<Datagram> burst_;
  bool begun_ = false, header_in_ = false, words_in_ = false;
  size_t at_ = 0;
  uint64_t random_ = 88172645463325252ull;
  uint32_t value_ = 0;
  uint64_t still_ = 0;
  std::vector<uint64_t> stamps_;
  std::deque<Header> headers_;
  std::vector<uint8_t> octets_;
  uint64_t left_ = 0;
  Out out_;
  What what_ = kGood;
};

}  // namespace

int main() {
  Bench bench;
  for (int command; (command = fgetc(stdin)) != EOF;) {
    Out out;
    switch (command) {
      case 'R': {
        uint8_t secret[16];
        if (fread(secret, sizeof secret, 1, stdin) != 1) return 1;
        bench.reset(secret);
        out.put(bench.now());
        break;
      }
      case 'J':
        bench.jump(read<uint64_t>());
        break;
      case 'P': {
        const auto header = read<uint8_t>();
        bench.pressure(header, read<uint8_t>());
        break;
      }
      case 'D': {
        Datagram in;
        const auto flags = read<uint8_t>();
        in.damaged = flags & 1;
        in.header_first = flags & 2;
        in.gaps = read<uint8_t>();
        in.ip = read<uint32_t>();
        in.port = read<uint16_t>();
        in.said = read<uint16_t>();
        in.octets.resize(read<uint16_t>());
        if (!in.octets.empty() && fread(in.octets.data(), in.octets.size(), 1, stdin) != 1) return 1;
        bench.add(std::move(in));
        break;
      }
      case 'Q':
        bench.run();
        bench.answer();
        break;
      case 'X':
        bench.run(read<uint16_t>());
        break;
      case 'W': {
        const auto at = read<uint16_t>();
        out.put(bench.write(at, read<uint32_t>()));
        break;
      }
      case 'C':
        out.put(bench.load(read<uint16_t>()));
        break;
      default:
        fprintf(stderr, "error: %c is no command\n", command);
        return 2;
    }
    out.send();
    if (command == 'Q' || command == 'R' || command == 'W' || command == 'C') fflush(stdout);
  }
  return 0;
}
