// Values of quantize's flags.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compress/quantize_model.h"

namespace quintet {

struct ParsedShares {
  OutlierShares shares;
  bool automatic = false;  ///< as many outliers as the shares say in all, each tensor's from what is measured
};
/// --outliers: "0.1" or "first=0.05,middle=0.1,head=0.2", in percent; "auto", "auto=0.1" and so on.
Result<ParsedShares> parse_shares(std::string_view text);

/// --tensor-format: "PATTERN=FORMAT,...", of formats that can be made. `gguf`: for a GGUF file, whose formats alone are allowed then.
Result<std::vector<FormatOverride>> parse_overrides(std::string_view text, bool gguf);

/// "36GB", "24GiB", "500000000": powers of 1000, or of 1024 with an i. `flag` names it in errors.
Result<uint64_t> parse_size(std::string_view flag, std::string_view text);

}  // namespace quintet
