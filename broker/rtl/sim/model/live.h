// Real UDP sockets in front of the design, as fast as it goes.
#pragma once

#include <string>

#include "design.h"

namespace model {

struct LiveSettings {
  Address listen{0x7f000001, 1883};
  Secret secret{};
  std::string status;  // a file, written each second as JSON; empty for none
};

// Serves until SIGINT or SIGTERM. Returns the exit code; says on stderr what is wrong.
int live(const LiveSettings &settings);

}  // namespace model
