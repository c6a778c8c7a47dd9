// One self-contained HTML page about a compressed model, its plots as SVG.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/smoke_run.h"
#include "compress/quantize_model.h"

namespace quintet {

inline constexpr std::string_view kReportName = "report.html";

struct ReportPage {
  std::string source, destination, method;
  const QuantizeReport& quantized;
  const SmokeReport* smoke = nullptr;  ///< null: none was made
};

/// Histograms of weights with the range that codes reach and what was kept apart; error by layer and tensor; bits by
/// tensor; KL of the result from its source, token by token; texts of both.
std::string report_html(const ReportPage& page);

/// Whether write_report() would take this folder, as far as can be told without touching it: bad_input otherwise.
Status check_report_folder(const std::string& folder);
/// Makes the folder where it is not there, and report.html in it.
Status write_report(const std::string& folder, const ReportPage& page);

}  // namespace quintet
