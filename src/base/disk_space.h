// Whether a disk has the room that work will take, before the work.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quintet {

/// no_room, with both figures and `sum`, which says what takes them ("weights 2 GB + ..."), where less than `bytes` is free on
/// the disk of `folder`. No error where that cannot be told.
Status check_disk_space(const std::string& folder, uint64_t bytes, std::string_view sum);

/// What the regular files of a folder (not of its subfolders) take on the disk.
uint64_t disk_bytes_of(const std::string& folder);

}  // namespace quintet
