// Scales figures to coordinates and writes SVG by hand.
#include "cli/report_page.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "base/output_file.h"
#include "base/units.h"

namespace quintet {
namespace {

constexpr std::array<const char*, 8> kColours = {"#4269d0", "#efb118", "#ff725c", "#6cc5b0",
                                                 "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5"};
constexpr double kWidth = 760, kHeight = 260, kLeft = 60, kRight = 16, kTop = 14, kBottom = 34;

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '&') out += "&amp;";
    else if (c == '"') out += "&quot;";
    else if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') out += "\xEF\xBF\xBD";
    else out += c;
  }
  return out;
}

/// "blk.3.ffn_up.weight" and "model.layers.3.mlp.up_proj.weight": the layer, and what is left of the name.
struct NameParts {
  int layer = -1;
  std::string kind;
};
NameParts parts_of(std::string_view name) {
  for (const std::string_view lead : {"blk.", "model.layers."}) {
    if (!name.starts_with(lead)) continue;
    const std::string_view rest = name.substr(lead.size());
    const size_t dot = rest.find('.');
    if (dot == rest.npos || dot == 0 || rest.find_first_not_of("0123456789") != dot) continue;
    std::string_view kind = rest.substr(dot + 1);
    if (kind.ends_with(".weight")) kind.remove_suffix(7);
    return {std::stoi(std::string(rest.substr(0, std::min<size_t>(dot, 6)))), std::string(kind)};
  }
  return {-1, std::string(name)};
}

/// A plot's frame with axes; points are in figures, not pixels.
class Plot {
 public:
  Plot(double x0, double x1, double y0, double y1) : x0_(x0), x1_(x1 > x0 ? x1 : x0 + 1), y0_(y0), y1_(y1 > y0 ? y1 : y0 + 1) {}

  double x(double value) const { return kLeft + (value - x0_) / (x1_ - x0_) * (kWidth - kLeft - kRight); }
  double y(double value) const { return kHeight - kBottom - (value - y0_) / (y1_ - y0_) * (kHeight - kTop - kBottom); }
  void add(std::string svg) { body_ += svg; }
  void tick_x(double at, std::string_view label) {
    add(fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>", x(at), kHeight - kBottom + 16, escaped(label)));
  }
  void tick_y(double at, std::string_view label) {
    add(fmt::format("<line x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}' class='grid'/>"
                    "<text x='{:.1f}' y='{:.1f}' text-anchor='end'>{}</text>",
                    kLeft, kWidth - kRight, y(at), y(at), kLeft - 6, y(at) + 4, escaped(label)));
  }
  std::string finish(std::string_view caption) const {
    return fmt::format("<svg viewBox='0 0 {} {}' role='img' aria-label='{}'><rect x='{}' y='{}' width='{}' height='{}' "
                       "class='frame'/>{}</svg><p class='caption'>{}</p>\n",
                       kWidth, kHeight, escaped(caption), kLeft, kTop, kWidth - kLeft - kRight, kHeight - kTop - kBottom,
                       body_, escaped(caption));
  }

 private:
  double x0_, x1_, y0_, y1_;
  std::string body_;
};

std::string polyline(const Plot& plot, const std::vector<std::pair<double, double>>& points, std::string_view colour) {
  std::string path;
  for (const auto& [x, y] : points) path += fmt::format("{:.1f},{:.1f} ", plot.x(x), plot.y(y));
  return fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='1.8'/>", path, colour);
}

std::string legend(const std::vector<std::string>& names) {
  std::string out = "<p class='legend'>";
  for (size_t i = 0; i < names.size(); ++i)
    out += fmt::format("<span><i style='background:{}'></i>{}</span> ", kColours[i % kColours.size()], escaped(names[i]));
  return out + "</p>\n";
}

double bits_of(const TensorReport& t) {
  return t.weights > 0 ? 8.0 * static_cast<double>(t.bytes) / static_cast<double>(t.weights) : 0;
}

using ByKind = std::map<std::string, std::map<int, const TensorReport*>>;

ByKind by_kind(const QuantizeReport& report) {
  ByKind all;
  for (const TensorReport& t : report.tensors)
    if (const NameParts parts = parts_of(t.name); parts.layer >= 0 && t.changed && t.error > 0) all[parts.kind][parts.layer] = &t;
  return all;
}

int last_layer(const ByKind& all) {
  int last = 0;
  for (const auto& [kind, layers] : all)
    if (!layers.empty()) last = std::max(last, layers.rbegin()->first);
  return last;
}

void layer_ticks(Plot& plot, int last) {
  for (int i = 0; i <= last; i += std::max(1, last / 10)) plot.tick_x(i, fmt::format("{}", i));
}

std::string error_plot(const ByKind& all) {
  double low = INFINITY, high = -INFINITY;
  std::vector<std::string> names;
  for (const auto& [kind, layers] : all) {
    names.push_back(kind);
    for (const auto& [layer, t] : layers) low = std::min(low, std::log10(t->error)), high = std::max(high, std::log10(t->error));
  }
  if (names.empty()) return "<p>No tensor of a layer was compressed with a loss.</p>";
  const int last = last_layer(all);
  Plot plot(0, last, std::floor(low), std::ceil(high));
  for (double decade = std::floor(low); decade <= std::ceil(high); ++decade) plot.tick_y(decade, fmt::format("1e{:.0f}", decade));
  layer_ticks(plot, last);
  size_t colour = 0;
  for (const auto& [kind, layers] : all) {
    std::vector<std::pair<double, double>> points;
    for (const auto& [layer, t] : layers) points.emplace_back(layer, std::log10(t->error));
    plot.add(polyline(plot, points, kColours[colour++ % kColours.size()]));
  }
  return legend(names) + plot.finish("Relative error of the output by layer (horizontal) and tensor: lost over all of sum h e^2, "
                                     "logarithmic");
}

/// A cell a tensor: light few bits, dark many.
std::string bits_plot(const ByKind& all) {
  if (all.empty()) return {};
  const int last = last_layer(all);
  const double cell_w = (kWidth - 150 - kRight) / (last + 1), cell_h = 22;
  const double height = cell_h * static_cast<double>(all.size()) + 40;
  std::string body;
  double y = 8;
  for (const auto& [kind, layers] : all) {
    body += fmt::format("<text x='142' y='{:.1f}' text-anchor='end'>{}</text>", y + 15, escaped(kind));
    for (const auto& [layer, t] : layers) {
      const double bits = bits_of(*t), dark = std::clamp((bits - 2) / 8, 0.05, 1.0);
      body += fmt::format("<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='rgba(66,105,208,{:.2f})'>"
                          "<title>{}: {} {:.3f} bits</title></rect>",
                          150 + layer * cell_w, y, std::max(1.0, cell_w - 1), cell_h - 2, dark, escaped(t->name),
                          format_info(t->format).name, bits);
      if (cell_w > 26)
        body += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='middle' class='cell'>{:.1f}</text>",
                            150 + (layer + 0.5) * cell_w, y + 14, bits);
    }
    y += cell_h;
  }
  for (int i = 0; i <= last; i += std::max(1, last / 10))
    body += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>", 150 + (i + 0.5) * cell_w, y + 14, i);
  return fmt::format("<svg viewBox='0 0 {} {:.0f}' role='img' aria-label='bits by tensor'>{}</svg><p class='caption'>Bits a "
                     "weight, scales and outliers included, by layer (horizontal) and tensor</p>\n",
                     kWidth, height, body);
}

std::string histogram(const TensorReport& t) {
  const WeightPlot& w = t.plot;
  double most = 0;
  for (const int64_t count : w.counts) most = std::max(most, std::log10(1.0 + static_cast<double>(count)));
  Plot plot(-w.largest, w.largest, 0, most);
  const double bin = 2.0 * w.largest / static_cast<double>(w.counts.size());
  for (size_t i = 0; i < w.counts.size(); ++i) {
    const double x = -w.largest + bin * static_cast<double>(i), h = std::log10(1.0 + static_cast<double>(w.counts[i]));
    plot.add(fmt::format("<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='#97bbf5'/>", plot.x(x), plot.y(h),
                         plot.x(x + bin) - plot.x(x) - 0.5, plot.y(0) - plot.y(h)));
  }
  for (const double end : {-w.reach, w.reach})
    plot.add(fmt::format("<line x1='{0:.1f}' x2='{0:.1f}' y1='{1:.1f}' y2='{2:.1f}' stroke='#ff725c' stroke-dasharray='4 3'/>",
                         plot.x(end), plot.y(0), plot.y(most)));
  for (const float value : w.outliers)
    plot.add(fmt::format("<line x1='{0:.1f}' x2='{0:.1f}' y1='{1:.1f}' y2='{2:.1f}' stroke='#a463f2' stroke-opacity='.5'/>",
                         plot.x(value), plot.y(0), plot.y(0) - 14));
  for (double decade = 0; decade <= most; ++decade) plot.tick_y(decade, fmt::format("1e{:.0f}", decade));
  for (const double at : {-w.largest, 0.0f, w.largest}) plot.tick_x(at, fmt::format("{:.3g}", at));
  return plot.finish(fmt::format("{} ({}): weights, logarithmic; red: the mean reach of codes; violet: {} weights kept apart{}", t.name,
                                 format_info(t.format).name, t.outliers, t.outliers > 0 ? " (some of them shown)" : ""));
}

/// One tensor of each kind, of a layer in the middle.
std::string histograms(const QuantizeReport& report) {
  std::map<std::string, std::vector<const TensorReport*>> of;
  for (const TensorReport& t : report.tensors)
    if (!t.plot.counts.empty() && t.plot.largest > 0) of[parts_of(t.name).kind].push_back(&t);
  std::string out;
  for (const auto& [kind, tensors] : of) out += histogram(*tensors[tensors.size() / 2]);
  return out.empty() ? "<p>None: the work was taken up behind its tensors.</p>" : out;
}

std::string kl_plot(const SmokeReport& smoke) {
  std::vector<float> sorted = smoke.kl;
  std::sort(sorted.begin(), sorted.end());
  const auto log_of = [](double value) { return std::log10(std::max(value, 1e-7)); };
  const double low = std::floor(log_of(sorted.front())), high = std::ceil(log_of(sorted.back()));
  Plot plot(0, 100, low, high);
  for (double decade = low; decade <= high; ++decade) plot.tick_y(decade, fmt::format("1e{:.0f}", decade));
  for (int share = 0; share <= 100; share += 20) plot.tick_x(share, fmt::format("{} %", share));
  std::vector<std::pair<double, double>> points;
  for (size_t i = 0; i < sorted.size(); i += std::max<size_t>(1, sorted.size() / 400))
    points.emplace_back(100.0 * static_cast<double>(i) / static_cast<double>(std::max<size_t>(1, sorted.size() - 1)), log_of(sorted[i]));
  plot.add(polyline(plot, points, kColours[0]));
  plot.add(polyline(plot, {{0, log_of(smoke.distance.kl_mean)}, {100, log_of(smoke.distance.kl_mean)}}, kColours[2]));
  return plot.finish("KL divergence from the source, by token, in order of size; red: the mean. Before compression it is 0");
}

std::string texts_table(const SmokeReport& smoke) {
  std::string out = "<table><tr><th>the source writes</th><th>the compressed model writes</th></tr>";
  for (size_t i = 0; i < std::min(smoke.source.texts.size(), smoke.made.texts.size()); ++i)
    out += fmt::format("<tr><td><pre>{}</pre></td><td><pre>{}</pre></td></tr>", escaped(smoke.source.texts[i]),
                       escaped(smoke.made.texts[i]));
  return out + "</table>\n";
}

std::string tensor_table(const QuantizeReport& report) {
  std::string out = "<table><tr><th>tensor</th><th>format</th><th>weights</th><th>bits</th><th>outliers</th><th>error</th><th></th></tr>";
  for (const TensorReport& t : report.tensors) {
    if (!t.changed && t.note.empty()) continue;
    out += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.3f}</td><td>{}</td><td>{:.3g}</td><td>{}</td></tr>", escaped(t.name),
                       format_info(t.format).name, t.weights, bits_of(t), t.outliers, t.error, escaped(t.note));
  }
  return out + "</table>\n";
}

constexpr std::string_view kStyle =
    "body{font:15px/1.45 system-ui,sans-serif;max-width:860px;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}"
    "h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}svg{width:100%;height:auto;font:11px system-ui,sans-serif}"
    ".frame{fill:none;stroke:#bbb}.grid{stroke:#eee}.caption{color:#555;margin:.2rem 0 1.2rem}.cell{font-size:9px}"
    "table{border-collapse:collapse;width:100%;font-size:13px}th,td{border:1px solid #ddd;padding:.25rem .5rem;text-align:left;"
    "vertical-align:top}pre{white-space:pre-wrap;margin:0;font-size:12px}.legend span{margin-right:1rem}.legend i{display:inline-block;"
    "width:.8rem;height:.8rem;margin-right:.3rem}details{margin-top:1rem}"
    "@media(prefers-color-scheme:dark){body{background:#16181d;color:#ddd}.grid{stroke:#2a2d34}.frame{stroke:#555}svg text{fill:#ccc}"
    ".caption{color:#aaa}th,td{border-color:#3a3d44}}";

}  // namespace

std::string report_html(const ReportPage& page) {
  const QuantizeReport& q = page.quantized;
  uint64_t weights = 0, bytes = 0;
  for (const TensorReport& t : q.tensors)
    if (t.changed) weights += static_cast<uint64_t>(t.weights), bytes += t.bytes;
  const ByKind kinds = by_kind(q);
  std::string html = fmt::format("<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
                                 "content='width=device-width'><title>{0}</title><style>{1}</style></head><body><h1>{0}</h1>\n",
                                 escaped(page.destination), kStyle);
  html += fmt::format("<p>Made of {} by <b>{}</b>. Weights: {} before, {} now; the compressed ones take {:.4f} bits each.</p>\n",
                      escaped(page.source), escaped(page.method), format_bytes(q.source_bytes), format_bytes(q.bytes),
                      weights ? 8.0 * static_cast<double>(bytes) / static_cast<double>(weights) : 0.0);
  if (page.smoke) {
    const SmokeReport& s = *page.smoke;
    html += "<h2>Before and after</h2><table><tr><th></th><th>source</th><th>compressed</th></tr>";
    html += fmt::format("<tr><td>repetition</td><td>{:.1f} %</td><td>{:.1f} %</td></tr><tr><td>garbage</td><td>{:.1f} %</td><td>{:.1f} "
                        "%</td></tr><tr><td>perplexity of its texts as the source reads them</td><td>{:.2f}</td><td>{:.2f}</td></tr>",
                        100 * s.source.repetition, 100 * s.made.repetition, 100 * s.source.garbage, 100 * s.made.garbage,
                        s.source.ppl, s.made.ppl);
    if (s.compared)
      html += fmt::format("<tr><td>KL from the source, {} tokens of the calibration text</td><td>0</td><td>{:.4f} ({:.4f} to {:.4f}), 99 % "
                          "below {:.3f}</td></tr><tr><td>same likeliest token</td><td>100 %</td><td>{:.1f} %</td></tr><tr><td>perplexity "
                          "of that text</td><td>{:.3f}</td><td>{:.3f}</td></tr>",
                          s.distance.tokens, s.distance.kl_mean, s.distance.kl_interval.low, s.distance.kl_interval.high,
                          s.distance.kl_p99, 100 * s.distance.top1, s.distance.ppl / s.distance.ppl_ratio, s.distance.ppl);
    html += "</table>\n";
    if (s.compared && !s.kl.empty()) html += kl_plot(s);
  }
  html += "<h2>Error by layer and tensor</h2>" + error_plot(kinds);
  html += "<h2>Bits by tensor</h2>" + bits_plot(kinds);
  html += "<h2>Weights</h2>" + histograms(q);
  if (page.smoke) html += "<h2>Texts</h2>" + texts_table(*page.smoke);
  html += "<h2>All tensors</h2><details><summary>Show them</summary>" + tensor_table(q) + "</details></body></html>\n";
  return html;
}

Status check_report_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  const auto fault = [&](const std::string& at, std::string_view found) {
    return bad_input(fmt::format("--report {}: {}: {}, allowed is a folder, or a name for one in a folder", folder, at, found));
  };
  std::error_code error;
  fs::path at = folder;
  fs::file_status status = fs::status(at, error);
  // The first of the folders above that is there.
  for (; status.type() == fs::file_type::not_found; status = fs::status(at, error)) {
    const fs::path up = at.has_parent_path() ? at.parent_path() : fs::path(".");
    if (fs::is_symlink(fs::symlink_status(at, error)) || up == at) return fault(at.string(), "found nothing behind it");
    at = up;
  }
  if (!fs::status_known(status)) return fault(at.string(), error.message());
  if (!fs::is_directory(status)) return fault(at.string(), "found no folder");
  if (::access(at.c_str(), W_OK | X_OK) != 0) return fault(at.string(), std::strerror(errno));
  return at == fs::path(folder) ? OutputFile::check(fmt::format("{}/{}", folder, kReportName)) : Status();
}

Status write_report(const std::string& folder, const ReportPage& page) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return bad_input(fmt::format("--report: {}: cannot make the folder: {}", folder, error.message()));
  TRY_ASSIGN(OutputFile file, OutputFile::create(fmt::format("{}/{}", folder, kReportName)));
  const std::string html = report_html(page);
  if (std::fwrite(html.data(), 1, html.size(), file.stream()) != html.size()) return file.write_error();
  return file.finish();
}

}  // namespace quintet
