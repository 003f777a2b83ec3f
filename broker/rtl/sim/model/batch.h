// A file of timed datagrams in, a file of timed datagrams out, exact to the cycle.
#pragma once

#include <string>

#include "design.h"

namespace model {

struct BatchSettings {
  std::string in, out;
  Secret secret{};
  unsigned link_gbps = 10;
  size_t queue = 64;        // datagrams that the outer core keeps for the broker; more are lost
  uint64_t settle = 20000;  // cycles without anything after which it ends
  bool prove = false;       // answer challenges, as every true subscriber does
};

// Returns the exit code; says on stderr what is wrong.
int batch(const BatchSettings &settings);

}  // namespace model
