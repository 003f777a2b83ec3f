// The UDP socket: datagrams with the kernel's receive stamps, copies with its transmit stamps.
#pragma once

#include <deque>
#include <map>
#include <unordered_map>

#include "design.h"

namespace model {

class Door {
 public:
  explicit Door(const Address &listen);
  ~Door();
  Door(const Door &) = delete;

  // Waits for a datagram, at most so long.
  void wait(int milliseconds) const;
  // Gives what has arrived to the design; returns how many.
  size_t receive(Design &design);
  // Sends, and states residence by the host's stamps where the design leaves that to be filled.
  void send(std::deque<Sent> copies);

  uint64_t received = 0, oversized = 0, unstamped = 0, sent = 0, unsent = 0;

 private:
  // The last copy with a trailer that went to somebody.
  struct Last {
    uint32_t copy = 0;        // its number, 0: none
    uint64_t stated_ns = 0;   // when the program said that it left
    uint64_t left_ns = 0;     // when the kernel says that it left, 0: not known
    uint32_t identifier = 0;  // of its transmit stamp
  };

  void number_from_zero();
  // False where nothing could be stated.
  bool state_residence(Sent &copy);
  void read_transmit_stamps();
  void send_plain(std::deque<Sent> &copies);

  int socket_;
  uint32_t next_identifier_ = 0;
  std::map<Address, Last> last_;
  std::unordered_map<uint32_t, Address> awaited_;
};

// Nanoseconds of CLOCK_REALTIME, which the kernel stamps datagrams with.
uint64_t now_ns();

}  // namespace model
