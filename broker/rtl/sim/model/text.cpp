#include "text.h"

#include <arpa/inet.h>

#include <charconv>

namespace model {
namespace {

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::optional<uint64_t> number_of(std::string_view text) {
  uint64_t value = 0;
  const char *end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end) return {};
  return value;
}

std::optional<Address> address_of(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return {};
  const auto port = number_of(text.substr(colon + 1));
  in_addr ip{};
  if (!port || *port > 65535) return {};
  if (inet_pton(AF_INET, std::string(text.substr(0, colon)).c_str(), &ip) != 1) return {};
  return Address{ntohl(ip.s_addr), static_cast<uint16_t>(*port)};
}

std::optional<Octets> octets_of(std::string_view hex) {
  if (hex.empty() || hex.size() % 2) return {};
  Octets octets;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit(hex[i]), low = digit(hex[i + 1]);
    if (high < 0 || low < 0) return {};
    octets.push_back(high << 4 | low);
  }
  return octets;
}

std::optional<Secret> secret_of(std::string_view hex) {
  const auto octets = octets_of(hex);
  if (!octets || octets->size() != 16) return {};
  Secret secret{};
  for (size_t i = 0; i < 16; ++i) secret[i / 4] |= uint32_t{(*octets)[i]} << (8 * (i % 4));
  return secret;
}

std::string text_of(const Address &address) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) {
    text += std::to_string(address.ip >> shift & 255) + (shift ? "." : ":");
  }
  return text + std::to_string(address.port);
}

std::string hex_of(const Octets &octets) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * octets.size());
  for (const uint8_t octet : octets) {
    text += kDigits[octet >> 4];
    text += kDigits[octet & 15];
  }
  return text;
}

}  // namespace model
