#include "batch.h"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <vector>

#include "text.h"

namespace model {
namespace {

constexpr size_t kMostOctets = 2000;  // longer than any datagram that is accepted
constexpr uint64_t kMostCycles = 1ull << 40;
constexpr uint64_t kProofCycles = 1000;  // from a challenge to its answer
constexpr char kProof[] = "\x30\x10\x00\x06$proof";

// Reads "CYCLE ADDRESS OCTETS" lines one at a time.
class Reader {
 public:
  explicit Reader(const std::string &path) : path_(path), file_(path) {
    if (!file_) throw std::runtime_error(path + " cannot be read; name a file of datagrams.");
  }

  // Makes the next datagram `next`; false at the end.
  bool read(Received &next) {
    std::string line;
    while (std::getline(file_, line)) {
      ++line_;
      if (line.empty() || line[0] == '#') continue;
      std::vector<std::string_view> words;
      const std::string_view all(line);
      for (size_t at = 0; at < all.size();) {
        const size_t end = std::min(all.find(' ', at), all.size());
        words.push_back(all.substr(at, end - at));
        at = end + 1;
      }
      if (words.size() != 3) fail("is not CYCLE ADDRESS OCTETS");
      const auto cycle = number_of(words[0]);
      const auto from = address_of(words[1]);
      auto octets = octets_of(words[2]);
      if (!cycle || *cycle > kMostCycles) fail("does not begin with a cycle below 2^40");
      if (*cycle < last_) fail("is earlier than the line before; sort them");
      if (!from) fail("has no address such as 10.0.0.2:5000");
      if (!octets) fail("has octets that are not pairs of hexadecimal digits");
      if (octets->size() > kMostOctets) fail("has more than 2000 octets");
      last_ = *cycle;
      next = {*cycle, *from, std::move(*octets), 0};
      return true;
    }
    if (file_.bad()) throw std::runtime_error(path_ + " cannot be read to its end.");
    return false;
  }

 private:
  [[noreturn]] void fail(const std::string &what) const {
    throw std::runtime_error("Line " + std::to_string(line_) + " of " + path_ + " " + what + ".");
  }

  std::string path_;
  std::ifstream file_;
  uint64_t line_ = 0, last_ = 0;
};

bool is_challenge(const Octets &octets) {
  return octets.size() == 18 && std::equal(kProof, kProof + 10, octets.begin());
}

class Batch {
 public:
  explicit Batch(const BatchSettings &settings)
      : settings_(settings),
        reader_(settings.in),
        out_(settings.out),
        design_(settings.secret, settings.link_gbps, false) {
    if (!out_) throw std::runtime_error(settings.out + " cannot be written.");
  }

  void run() {
    bool more = reader_.read(next_);
    uint64_t quiet = 0;
    while (more || design_.waiting() || !proofs_.empty() || quiet < settings_.settle) {
      while (!proofs_.empty() && proofs_.front().cycle <= design_.cycle() + 1) {
        offer(std::move(proofs_.front()));
        proofs_.pop_front();
      }
      while (more && next_.cycle <= design_.cycle() + 1) {
        offer(std::move(next_));
        more = reader_.read(next_);
      }
      const bool moved = design_.step();
      quiet = moved ? 0 : quiet + 1;
      if (moved) write();
      // Datagrams that wait and are never taken: the design hangs.
      if (design_.waiting() && quiet > kMostQuiet) {
        throw std::runtime_error("The design took nothing for " + std::to_string(quiet) +
                                 " cycles while a datagram waited.");
      }
    }
    out_ << "# cycles " << design_.cycle() << "\n# received " << received_ << "\n# lost " << lost_
         << "\n# sent " << sent_ << "\n";
    out_.flush();
    if (!out_) throw std::runtime_error(settings_.out + " cannot be written to its end.");
  }

 private:
  static constexpr uint64_t kMostQuiet = 10'000'000;

  void offer(Received datagram) {
    ++received_;
    datagram.stamp = design_.stamp_at(datagram.cycle);
    if (design_.waiting() >= settings_.queue) {
      ++lost_;
    } else {
      design_.offer(std::move(datagram));
    }
  }

  void write() {
    for (Sent &sent : design_.take()) {
      ++sent_;
      out_ << sent.cycle << ' ' << text_of(sent.to) << ' ' << hex_of(sent.octets) << '\n';
      if (settings_.prove && is_challenge(sent.octets)) {
        const uint64_t at = design_.cycle() + kProofCycles;
        proofs_.push_back({at, sent.to, std::move(sent.octets), 0});
      }
    }
  }

  const BatchSettings &settings_;
  Reader reader_;
  std::ofstream out_;
  Design design_;
  Received next_;
  std::deque<Received> proofs_;
  uint64_t received_ = 0, lost_ = 0, sent_ = 0;
};

}  // namespace

int batch(const BatchSettings &settings) {
  try {
    Batch(settings).run();
    return 0;
  } catch (const std::runtime_error &error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}

}  // namespace model
