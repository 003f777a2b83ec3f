// Addresses, octets and numbers as text; what cannot be read gives no value.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "design.h"

namespace model {

std::optional<uint64_t> number_of(std::string_view text);
std::optional<Address> address_of(std::string_view text);  // 10.0.0.2:5000
std::optional<Octets> octets_of(std::string_view hex);
std::optional<Secret> secret_of(std::string_view hex);  // 32 digits; the first octet is bits 7:0
std::string text_of(const Address &address);
std::string hex_of(const Octets &octets);

}  // namespace model
