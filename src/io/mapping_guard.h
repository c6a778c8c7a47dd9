// What happens where a mapped file is cut short by others: the kernel answers a touch of the lost pages with
// SIGBUS, and the process ends with a message that names the file.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace quintet {

/// Installs the handler of SIGBUS: a fault inside of a guarded mapping writes one line to stderr and ends the
/// process with exit code 1; any other ends it as if there were no handler. Call once, before threads start.
void guard_mappings();

/// Enters a mapping into the handler's table, and takes it out. Any thread. Where the table is full, the
/// message names no file.
void enter_mapping(std::span<const uint8_t> bytes, std::string_view path);
void leave_mapping(std::span<const uint8_t> bytes);

}  // namespace quintet
