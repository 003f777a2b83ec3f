#include "design.h"

#include <algorithm>
#include <stdexcept>

#include "Vmqtick_model.h"
#include "verilated.h"

namespace model {
namespace {

constexpr size_t kHeaders = 2;  // that the outer core keeps
constexpr uint64_t kClearCycles = 1'000'000;

}  // namespace

void Link::begin(uint64_t cycle, size_t octets) {
  if (each_ == 0) return;
  // A datagram that waited leaves as soon as the wire is free, within the cycle.
  const uint64_t from = waited_ ? until_ : std::max(until_, cycle * each_);
  until_ = from + 10 * (kOverhead + std::max(octets, kLeastPayload));
  waited_ = false;
}

Design::Design(const Secret &secret, unsigned link_gbps, bool host_stamps, uint64_t now)
    : context_(std::make_unique<VerilatedContext>()),
      top_(std::make_unique<Vmqtick_model>(context_.get())),
      link_(link_gbps),
      host_stamps_(host_stamps),
      now_(now) {
  for (size_t word = 0; word < secret.size(); ++word) top_->seed[word] = secret[word];
  top_->rst = 1;
  for (int i = 0; i < 16; ++i) step();
  top_->rst = 0;
  top_->seed_valid = 1;
  cycle_ = 0;
  // Tables are cleared word by word; cycle 0 is when it takes datagrams.
  for (uint64_t i = 0; !top_->rx_hdr_ready; ++i) {
    if (i == kClearCycles) throw std::runtime_error("The design takes nothing after its reset.");
    step();
  }
  std::swap(cycle_, clearing_);
}

Design::~Design() { top_->final(); }

void Design::drive() {
  // A UDP core knows the header before the payload begins.
  const bool known = !waiting_.empty() && waiting_.front().cycle <= cycle_ + 1 && !top_->rst;
  top_->rx_hdr_valid = known && !header_in_;
  top_->rx_tvalid = known && waiting_.front().cycle <= cycle_;
  top_->rx_tuser = 0;
  if (known) {
    const Received &in = waiting_.front();
    top_->rx_src_ip = in.from.ip;
    top_->rx_src_port = in.from.port;
    top_->rx_length = in.octets.size();
    top_->rx_stamp = in.stamp;
    const size_t count = std::min<size_t>(8, in.octets.size() - at_);
    uint64_t word = 0;
    for (size_t i = 0; i < count; ++i) word |= uint64_t{in.octets[at_ + i]} << (8 * i);
    top_->rx_tdata = word;
    top_->rx_tkeep = (1u << count) - 1;
    top_->rx_tlast = at_ + count == in.octets.size();
  }
  top_->tx_hdr_ready = headers_.size() < kHeaders;
  top_->tx_tready = began_ || link_.free(cycle_);
  top_->now = now();
}

bool Design::sample() {
  bool moved = false;
  if (top_->rx_hdr_valid && top_->rx_hdr_ready) header_in_ = moved = true;
  if (top_->rx_tvalid && top_->rx_tready) {
    moved = true;
    at_ += 8;
    if (top_->rx_tlast) {
      waiting_.pop_front();
      at_ = 0;
      header_in_ = false;
    }
  }
  if (top_->tx_hdr_valid && top_->tx_hdr_ready) {
    moved = true;
    Sent next;
    next.to = {top_->tx_dst_ip, static_cast<uint16_t>(top_->tx_dst_port)};
    next.fill = top_->tx_fill;
    headers_.emplace_back(std::move(next), top_->tx_length);
  }
  if (top_->tx_tvalid && !top_->tx_tready) link_.waited();
  if (top_->tx_tvalid && top_->tx_tready) {
    moved = true;
    if (headers_.empty()) throw std::runtime_error("The design sent a word before its header.");
    auto &[sent, length] = headers_.front();
    if (!began_) {
      began_ = true;
      sent.cycle = cycle_;
      sent.stamp = now();
      link_.begin(cycle_, length);
    }
    for (int i = 0; i < 8; ++i) {
      if (top_->tx_tkeep >> i & 1) sent.octets.push_back(top_->tx_tdata >> (8 * i));
    }
    if (top_->tx_tlast) {
      if (sent.octets.size() != length) {
        throw std::runtime_error("The design sent " + std::to_string(sent.octets.size()) +
                                 " octets under a header of " + std::to_string(length) + ".");
      }
      done_.push_back(std::move(sent));
      headers_.pop_front();
      began_ = false;
    }
  }
  return moved;
}

bool Design::step() {
  drive();
  top_->clk = 0;
  top_->eval();
  const bool moved = !top_->rst && sample();
  top_->clk = 1;
  top_->eval();
  ++cycle_;
  return moved;
}

std::deque<Sent> Design::take() {
  std::deque<Sent> all;
  all.swap(done_);
  return all;
}

}  // namespace model
