// mqtick-broker-model: the hardware broker's RTL, compiled by Verilator, behind two doors.
#include <filesystem>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "batch.h"
#include "live.h"
#include "text.h"

namespace {

constexpr uint64_t kMostSettle = 1ull << 40;
constexpr char kUsage[] =
    "usage: mqtick-broker-model live [--listen 127.0.0.1:1883] [--status FILE] [--seed HEX]\n"
    "       mqtick-broker-model batch IN OUT [--link-gbps 10|1|0] [--queue 64] [--prove]\n"
    "                           [--settle CYCLES] [--seed HEX]\n"
    "\n"
    "live   answers on a UDP socket, as fast as it goes\n"
    "batch  takes datagrams from a file at stated cycles of 6.4 ns, writes what comes out, and when:\n"
    "       lines of CYCLE ADDRESS:PORT OCTETS (hexadecimal); # begins a comment\n"
    "\n"
    "exit codes: 0 good, 1 it failed, 2 wrong use\n";

int wrong_use(const std::string &what) {
  std::cerr << "error: " << what << "\n\n" << kUsage;
  return 2;
}

model::Secret drawn() {
  std::random_device random;
  return {random(), random(), random(), random()};
}

}  // namespace

int main(int argc, char **argv) {
  std::vector<std::string> words(argv + 1, argv + argc), plain;
  if (words.empty()) return wrong_use("Say live or batch.");
  if (words[0] == "--help" || words[0] == "-h") {
    std::cout << kUsage;
    return 0;
  }
  const std::string command = words[0];
  const bool is_live = command == "live";
  if (!is_live && command != "batch") return wrong_use(command + " is neither live nor batch.");
  model::LiveSettings live;
  model::BatchSettings batch;
  live.secret = drawn();  // a batch is the same each time, unless it is told otherwise
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string name = words[i];
    if (name.rfind("--", 0) != 0) {
      plain.push_back(name);
      continue;
    }
    if (name == "--prove" && !is_live) {
      batch.prove = true;
      continue;
    }
    if (++i == words.size()) return wrong_use(name + " needs a value.");
    const std::string &value = words[i];
    const auto number = model::number_of(value);
    const auto bad = [&] { return wrong_use(name + " cannot be " + value + "."); };
    if (name == "--seed") {
      const auto secret = model::secret_of(value);
      if (!secret) return bad();
      live.secret = batch.secret = *secret;
    } else if (name == "--listen" && is_live) {
      const auto address = model::address_of(value);
      if (!address || address->port == 0) return bad();
      live.listen = *address;
    } else if (name == "--status" && is_live) {
      // The file is replaced: a device would be gone.
      if (std::filesystem::exists(value) && !std::filesystem::is_regular_file(value)) return bad();
      live.status = value;
    } else if (name == "--link-gbps" && !is_live) {
      if (!number || (*number != 0 && *number != 1 && *number != 10)) return bad();
      batch.link_gbps = *number;
    } else if (name == "--queue" && !is_live) {
      if (!number || *number == 0) return bad();
      batch.queue = *number;
    } else if (name == "--settle" && !is_live) {
      if (!number || *number > kMostSettle) return bad();
      batch.settle = *number;
    } else {
      return wrong_use(name + " is not an option of " + command + ".");
    }
  }
  if (is_live) return plain.empty() ? model::live(live) : wrong_use(plain[0] + " is too much.");
  if (plain.size() != 2) return wrong_use("batch needs two files, IN and OUT.");
  std::error_code not_there;
  if (std::filesystem::equivalent(plain[0], plain[1], not_there)) {
    return wrong_use("IN and OUT are the same file.");
  }
  batch.in = plain[0];
  batch.out = plain[1];
  return model::batch(batch);
}
