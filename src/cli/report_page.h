// One self-contained HTML page about a compressed model, its plots as SVG.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/smoke_run.h"
#include "compress/quantize_model.h"

namespace quintet {

struct ReportPage {
  std::string source, destination, method;
  const QuantizeReport& quantized;
  const SmokeReport* smoke = nullptr;  ///< null: none was made
};

/// Histograms of weights with the range that codes reach and what was kept apart; error by layer and tensor; bits by
/// tensor; KL of the result from its source, token by token; texts of both.
std::string report_html(const ReportPage& page);

/// Makes the folder where it is not there, and report.html in it.
Status write_report(const std::string& folder, const ReportPage& page);

}  // namespace quintet
