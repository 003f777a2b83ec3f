#include "live.h"

#include <csignal>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <stdexcept>

#include "door.h"
#include "text.h"

namespace model {
namespace {

// So long without a word in or out, and what was asked has been answered. A look-up takes less, and
// what comes later is sent all the same, a few microseconds later.
constexpr int kQuietCycles = 512;
constexpr int kIdleCycles = 4096;  // in each idle millisecond, so that leases end
constexpr int kSendCycles = 64;    // copies are handed to the kernel that often
constexpr int kHungCycles = 10'000'000;
constexpr uint64_t kStatusNs = 1'000'000'000;

volatile std::sig_atomic_t stopped = 0;

void stop(int) { stopped = 1; }

uint64_t processor_ns() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return uint64_t(time.tv_sec) * 1'000'000'000 + uint64_t(time.tv_nsec);
}

class Live {
 public:
  explicit Live(const LiveSettings &settings)
      : settings_(settings),
        door_(settings.listen),
        design_(settings.secret, 0, true, stamp_of_ns(now_ns())) {}

  void run() {
    std::printf("The broker's RTL (simulated) listens on %s, UDP.\n",
                text_of(settings_.listen).c_str());
    std::fflush(stdout);
    while (!stopped) {
      if (door_.receive(design_)) {
        serve();
      } else {
        cycles(kIdleCycles);
        door_.send(design_.take());
        door_.wait(1);
      }
      const uint64_t now = now_ns();
      if (now - said_ns_ >= kStatusNs) {
        said_ns_ = now;
        say();
      }
    }
    say();
  }

 private:
  void cycles(int count) {
    design_.set_now(stamp_of_ns(now_ns()));
    for (int i = 0; i < count; ++i) design_.step();
  }

  // Runs until all that came has been answered.
  void serve() {
    const uint64_t from_cycle = design_.cycle(), from_ns = processor_ns();
    for (int quiet = 0; quiet < kQuietCycles || design_.waiting(); ++quiet) {
      if (quiet == kHungCycles) {
        throw std::runtime_error("The design took nothing for " + std::to_string(quiet) +
                                 " cycles while a datagram waited.");
      }
      if (design_.cycle() % kSendCycles == 0) {
        design_.set_now(stamp_of_ns(now_ns()));
        door_.send(design_.take());
      }
      if (design_.step()) quiet = 0;
    }
    door_.send(design_.take());
    busy_cycles_ += design_.cycle() - from_cycle;
    busy_ns_ += processor_ns() - from_ns;
  }

  // How much slower than the hardware it is: processor time of what it did, sending included.
  void say() {
    const double slower = busy_cycles_ ? double(busy_ns_) / (kCycleNs * double(busy_cycles_)) : 0;
    char text[512];
    std::snprintf(text, sizeof text,
                  "{\"simulated\": true, \"cycles\": %llu, \"slower_than_hardware\": %.0f, "
                  "\"received\": %llu, \"oversized\": %llu, \"unstamped\": %llu, "
                  "\"sent\": %llu, \"unsent\": %llu}\n",
                  static_cast<unsigned long long>(design_.cycle()), slower,
                  static_cast<unsigned long long>(door_.received),
                  static_cast<unsigned long long>(door_.oversized),
                  static_cast<unsigned long long>(door_.unstamped),
                  static_cast<unsigned long long>(door_.sent),
                  static_cast<unsigned long long>(door_.unsent));
    if (settings_.status.empty()) return;
    const std::string part = settings_.status + ".part";
    std::ofstream file(part);
    file << text;
    file.close();
    // Later the disk may be full: the broker goes on, and what was written stays.
    const bool written = file && !std::rename(part.c_str(), settings_.status.c_str());
    if (!written && !has_status_) throw std::runtime_error(settings_.status + " cannot be written.");
    has_status_ = has_status_ || written;
  }

  LiveSettings settings_;
  Door door_;
  Design design_;
  uint64_t said_ns_ = 0, busy_cycles_ = 0, busy_ns_ = 0;
  bool has_status_ = false;
};

}  // namespace

int live(const LiveSettings &settings) {
  std::signal(SIGINT, stop);
  std::signal(SIGTERM, stop);
  try {
    Live(settings).run();
    return 0;
  } catch (const std::runtime_error &error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}

}  // namespace model
