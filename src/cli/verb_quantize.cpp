// `quintet quantize`: a model into a folder of compressed weights.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "compress/quantize_model.h"
#include "quant/encode.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

/// The parts of a list "a,b,c".
std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    parts.push_back(text.substr(0, text.find(',')));
    text.remove_prefix(std::min(text.size(), parts.back().size() + 1));
  }
  return parts;
}

/// "0.1" or "first=0.05,middle=0.1,head=0.2", in percent.
Result<OutlierShares> parse_shares(std::string_view text) {
  OutlierShares shares;
  const auto fault = [&](std::string_view found) {
    return bad_input(
        fmt::format("--outliers: found '{}', allowed are a number from 0 to 10 (percent), or first=X, "
                    "middle=X and head=X separated by commas",
                    found));
  };
  for (const std::string_view part : split_list(text)) {
    const size_t equals = part.find('=');
    const std::string_view name = equals == part.npos ? "" : part.substr(0, equals);
    const std::string_view number = equals == part.npos ? part : part.substr(equals + 1);
    double percent = 0;
    const auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), percent);
    if (failed != std::errc() || end != number.data() + number.size() || !(percent >= 0 && percent <= 10))
      return fault(part);
    if (name.empty())
      shares = {percent / 100, percent / 100, percent / 100};
    else if (name == "first")
      shares.first = percent / 100;
    else if (name == "middle")
      shares.middle = percent / 100;
    else if (name == "head")
      shares.head = percent / 100;
    else
      return fault(part);
  }
  return shares;
}

/// `gguf`: for a GGUF file, whose formats alone are allowed then.
Result<std::vector<FormatOverride>> parse_overrides(std::string_view text, bool gguf) {
  const auto is_allowed = [&](WeightFormat format) {
    return gguf ? can_encode(format) : format <= WeightFormat::bf16 || integer_format(format).has_value();
  };
  std::string names;
  for (const FormatInfo& info : format_table())
    if (is_allowed(info.format)) names += fmt::format("{}{}", names.empty() ? "" : ", ", info.name);
  std::vector<FormatOverride> overrides;
  for (const std::string_view part : split_list(text)) {
    const size_t equals = part.rfind('=');
    const auto format = equals == part.npos ? std::nullopt : format_from_name(part.substr(equals + 1));
    if (!format || equals == 0 || !is_allowed(*format))
      return bad_input(
          fmt::format("--tensor-format: found '{}', allowed are PATTERN=FORMAT with the formats {}, "
                      "separated by commas",
                      part, names));
    overrides.push_back({.pattern = std::string(part.substr(0, equals)), .format = *format});
  }
  return overrides;
}

class QuantizeVerb : public Verb {
 public:
  std::string_view examples() const override {
    return "  quintet quantize model-f16.gguf model-int4/ --calibration valid.txt\n"
           "  quintet quantize Qwen2.5-7B/ qwen-int4/ --method rtn --group-size 64 --asymmetric\n"
           "  quintet quantize model-f16.gguf model-int3/ --method gptq+outlier --bits 3 --calibration "
           "valid.txt\n"
           "  quintet quantize Qwen2.5-7B/ small/ --method outlier --select magnitude --outliers 0.1\n"
           "  quintet quantize model-f16.gguf model-Q4_K_M.gguf --method q4_k_m --calibration valid.txt\n"
           "  quintet quantize model-f16.gguf small/ --method rtn --tensor-format "
           "'*embd*=int8_g128,blk.0.*=f16'\n";
  }

  void declare(FlagSet& flags) override {
    flags.model(source_);
    flags.positional("DST", destination_, "The folder to write, which must not exist yet");
    flags.text(
        "--method", method_, "NAME",
        fmt::format(
            "rtn: plain rounding; outlier (default): outliers kept in FP16; gptq; gptq+outlier; or a GGUF "
            "mix, with DST a .gguf file: {}",
            gguf_mix_names()));
    flags.integer("--bits", {bits_, 3, 8}, "Bits of a weight: 3, 4 or 8 (default 4)");
    granularity_flag_ = flags.choice("--granularity", granularity_, {"tensor", "channel", "group"},
                                     "What shares a scale (default group); tensor and channel with rtn only");
    flags.integer("--group-size", {group_, 32, 128}, "Weights of a group: 32, 64 or 128 (default 128)");
    flags.toggle("--asymmetric", asymmetric_, "A minimum beside the scale of each group");
    outliers_flag_ =
        flags.text("--outliers", outliers_, "PERCENT",
                   "Weights kept in FP16: one number, or first=X,middle=X,head=X for the first eighth of the "
                   "layers, the others, embedding and head (default first=0.05,middle=0.1,head=0.2)");
    select_flag_ =
        flags.choice("--select", select_, {"activation", "magnitude"},
                     "Choose outliers and ranges by their effect on calibration text (default), or by size");
    flags.number("--damping", {damping_, 0, 1},
                 "gptq: added to the Hessian's diagonal, of its mean (default 0.01)");
    flags.toggle("--no-act-order", no_act_order_,
                 "gptq: columns in their own order instead of by their inputs' size");
    calibration_flag_ =
        flags.text("--calibration", calibration_, "FILE", "Text that the model reads to weigh its inputs");
    flags.integer("--samples", {samples_, 1, 1 << 20}, "Stretches of the calibration text (default 16)");
    flags.integer("--length", {length_, 16, 1 << 20}, "Tokens of each (default 512)");
    flags.text(
        "--tensor-format", overrides_, "PATTERN=FORMAT,...",
        "Another format for tensors of these names, '*' for any characters: f16 and the like stay dense; "
        "embedding and head stay as they are without one");
    flags.toggle("--json", json_, "Print one JSON object a tensor, one a line, and one for the whole");
  }

  VerbOutcome run(const CommonOptions& common) override {
    TRY_ASSIGN(const QuantizeOptions options, read_options(common));
    TRY_ASSIGN(const auto backend, make_backend(common.backend));
    const Interrupts interrupts;
    Output output;
    Status printed;
    std::optional<ProgressBar> bar;
    std::string stage;
    const QuantizeHooks hooks{
        .on_tensor =
            [&](const TensorReport& tensor) {
              bar.reset();
              if (printed) printed = output.print(json_ ? json_line(tensor) : table_line(tensor));
            },
        .on_warning = [](std::string_view message) { say(fmt::format("quintet quantize: {}", message)); },
        .progress =
            [&](std::string_view now, uint64_t done, uint64_t all) {
              const bool tokens = now == "calibrate";
              if (!bar || stage != now)
                bar.emplace(std::string(now), tokens ? ProgressBar::Unit::tokens : ProgressBar::Unit::bytes);
              stage = now;
              bar->update(done, all);
              return interrupts.signal() == 0 && printed.has_value();
            }};
    const auto report = quantize_model(source_, destination_, *backend, options, hooks);
    bar.reset();
    TRY(printed);
    if (interrupts.signal() != 0 && !report) return VerbOutcome::ended_by(interrupts.signal());
    if (!report) return report.error();
    return output.print(json_ ? json_summary(*report, options) : table_summary(*report, options));
  }

 private:
  Status read_method(QuantizeOptions& options) const {
    static constexpr std::pair<std::string_view, QuantizeMethod> kMethods[] = {
        {"rtn", QuantizeMethod::rtn},
        {"outlier", QuantizeMethod::outlier},
        {"gptq", QuantizeMethod::gptq},
        {"gptq+outlier", QuantizeMethod::gptq_outlier}};
    options.mix = find_gguf_mix(method_);
    const auto known = std::find_if(std::begin(kMethods), std::end(kMethods),
                                    [&](const auto& row) { return row.first == method_; });
    if (!options.mix && known == std::end(kMethods))
      return bad_input(fmt::format("--method: found '{}', allowed are rtn, outlier, gptq, gptq+outlier, {}",
                                   method_, gguf_mix_names()));
    options.method = options.mix ? QuantizeMethod::gguf : known->second;
    if (destination_.ends_with(".gguf") != (options.mix != nullptr))
      return bad_input(fmt::format(
          "DST: found '{}', allowed with --method {} is {}", destination_, method_,
          options.mix ? "a name that ends in .gguf" : "the name of a folder, not of a .gguf file"));
    return {};
  }

  Result<QuantizeOptions> read_options(const CommonOptions& common) const {
    QuantizeOptions options;
    TRY(read_method(options));
    options.format = {
        .bits = static_cast<int>(bits_), .group = static_cast<int>(group_), .minimum = asymmetric_};
    if (!weight_format_of(options.format))
      return bad_input(fmt::format(
          "--bits, --group-size: found {} and {}, allowed are 3, 4 or 8 and 32, 64 or 128", bits_, group_));
    options.granularity = granularity_ == "tensor"    ? Granularity::tensor
                          : granularity_ == "channel" ? Granularity::channel
                                                      : Granularity::group;
    if (granularity_flag_.given() && granularity_ != "group" && options.method != QuantizeMethod::rtn)
      return bad_input(
          fmt::format("--granularity: found '{}', allowed with {} is group", granularity_, method_));
    options.select = select_ == "magnitude" ? OutlierSelect::magnitude : OutlierSelect::activation;
    if ((outliers_flag_.given() || select_flag_.given()) && !options.has_outliers())
      return bad_input(
          fmt::format("--outliers, --select: found with {}, allowed with outlier and gptq+outlier", method_));
    if (options.method == QuantizeMethod::gptq_outlier && options.select == OutlierSelect::magnitude)
      return bad_input("--select: found 'magnitude', allowed with gptq+outlier is activation");
    if (outliers_flag_.given()) {
      TRY_ASSIGN(options.shares, parse_shares(outliers_));
    }
    TRY_ASSIGN(options.overrides, parse_overrides(overrides_, options.mix != nullptr));
    options.damping = damping_;
    options.act_order = !no_act_order_;
    options.samples = samples_;
    options.length = length_;
    options.threads = common.backend.threads;
    if (options.needs_calibration() || calibration_flag_.given()) {
      if (!calibration_flag_.given())
        return bad_input(fmt::format("--calibration: found nothing, allowed with {} is a file of text{}",
                                     method_,
                                     options.is_gptq() ? "" : " (or --select magnitude, which needs none)"));
      TRY_ASSIGN(options.calibration_text, read_text(calibration_, "calibration text"));
      if (const size_t at = find_broken_utf8(options.calibration_text); at != std::string::npos)
        return bad_input(fmt::format("{} (calibration text): byte {} is no UTF-8, allowed is a text in UTF-8",
                                     calibration_, at));
    }
    return options;
  }

  static double bits_of(const TensorReport& t) {
    return t.weights > 0 ? 8.0 * static_cast<double>(t.bytes) / static_cast<double>(t.weights) : 0;
  }

  static std::string table_line(const TensorReport& t) {
    if (!t.changed && t.note.empty()) return {};  // norms and biases
    std::string line =
        fmt::format("{:<44} {:<16} {:6.3f} bits", t.name, format_info(t.format).name, bits_of(t));
    if (t.changed) line += fmt::format("  error {:.6f}", t.error);
    if (t.outliers > 0) line += fmt::format("  {} outliers", t.outliers);
    return line + (t.note.empty() ? "" : "  (" + t.note + ")") + "\n";
  }

  static std::string json_line(const TensorReport& t) {
    const Json line = {{"tensor", t.name},     {"format", std::string(format_info(t.format).name)},
                       {"changed", t.changed}, {"weights", t.weights},
                       {"bytes", t.bytes},     {"outliers", t.outliers},
                       {"error", t.error},     {"note", t.note}};
    return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  struct Sums {
    uint64_t weights = 0, bytes = 0, outliers = 0;
  };
  static Sums sum_of(const QuantizeReport& report) {
    Sums sums;
    for (const TensorReport& t : report.tensors) {
      if (!t.changed) continue;
      sums.weights += static_cast<uint64_t>(t.weights);
      sums.bytes += t.bytes;
      sums.outliers += static_cast<uint64_t>(t.outliers);
    }
    return sums;
  }

  std::string table_summary(const QuantizeReport& report, const QuantizeOptions& options) const {
    const Sums sums = sum_of(report);
    return fmt::format(
        "{}: {}, {} of weights ({} before); the compressed ones {:.4f} bits a weight\n", destination_,
        describe(options), format_bytes(report.bytes), format_bytes(report.source_bytes),
        sums.weights ? 8.0 * static_cast<double>(sums.bytes) / static_cast<double>(sums.weights) : 0.0);
  }

  std::string json_summary(const QuantizeReport& report, const QuantizeOptions& options) const {
    const Sums sums = sum_of(report);
    const Json line = {{"path", destination_},
                       {"method", describe(options)},
                       {"source_bytes", report.source_bytes},
                       {"bytes", report.bytes},
                       {"compressed_weights", sums.weights},
                       {"compressed_bytes", sums.bytes},
                       {"outliers", sums.outliers}};
    return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  std::string source_, destination_, method_ = "outlier", granularity_ = "group", outliers_,
                                     select_ = "activation";
  std::string calibration_, overrides_;
  int64_t bits_ = 4, group_ = 128, samples_ = 16, length_ = 512;
  double damping_ = 0.01;
  bool asymmetric_ = false, no_act_order_ = false, json_ = false;
  Flag granularity_flag_, outliers_flag_, select_flag_, calibration_flag_;
};

}  // namespace

std::unique_ptr<Verb> make_quantize_verb() { return std::make_unique<QuantizeVerb>(); }

}  // namespace quintet
