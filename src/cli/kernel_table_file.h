// Kernel tables as files: a JSON object of the device's name and the choices, written by `bench --tune`, read by --kernel-table.
#pragma once

#include <string>
#include <string_view>

#include "backend/kernel_table.h"
#include "base/result.h"

namespace quintet {

/// bad_input names `file`, the key, what was found and what is allowed. A choice that is left out is the committed one of the device.
Result<KernelTable> parse_kernel_table(std::string_view text, std::string_view file);
Result<KernelTable> read_kernel_table(const std::string& path);

/// An object of several lines, with an end.
std::string kernel_table_json(const KernelTable& table);

}  // namespace quintet
