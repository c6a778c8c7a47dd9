// `quintet quantize`: a model into a folder of compressed weights.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/output_file.h"
#include "base/units.h"
#include "cli/calibration_text.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/quantize_flags.h"
#include "cli/report_page.h"
#include "cli/smoke_run.h"
#include "cli/terminal.h"
#include "compress/choose_formats.h"
#include "compress/quantize_model.h"
#include "compress/work_folder.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

class QuantizeVerb : public Verb {
 public:
  std::string_view examples() const override {
    return "  quintet quantize model-f16.gguf model-int4/ --calibration valid.txt\n"
           "  quintet quantize Qwen2.5-7B/ qwen-int4/ --method rtn --group-size 64 --asymmetric\n"
           "  quintet quantize model-f16.gguf model-int3/ --method gptq+outlier --bits 3 --calibration "
           "valid.txt\n"
           "  quintet quantize Qwen2.5-7B/ small/ --method outlier --select magnitude --outliers 0.1\n"
           "  quintet quantize model-f16.gguf model-Q4_K_M.gguf --method q4_k_m --calibration valid.txt\n"
           "  quintet quantize Llama-3.1-70B/ fits/ --method auto --target-gpu 48GiB --context 8192 --users 4 --calibration "
           "valid.txt\n"
           "  quintet quantize model-f16.gguf small/ --method rtn --tensor-format "
           "'*embd*=int8_g128,blk.0.*=f16'\n";
  }

  void declare(FlagSet& flags) override {
    flags.model(source_);
    flags.positional("DST", destination_, "The folder to write (for GGUF mixes the file), which must not exist yet");
    flags.text(
        "--method", method_, "NAME",
        fmt::format(
            "rtn: plain rounding; outlier (default): outliers kept in FP16; gptq; gptq+outlier; awq; nf4, fp8 and int8 "
            "(a scale a row); auto: formats per tensor for --target-bytes or --target-gpu; or a GGUF mix, with DST a .gguf file: {}",
            gguf_mix_names()));
    integer_flags_.push_back(flags.integer("--bits", {bits_, 3, 8}, "Bits of a weight: 3, 4 or 8 (default 4)"));
    granularity_flag_ = flags.choice("--granularity", granularity_, {"tensor", "channel", "group"},
                                     "What shares a scale (default group); tensor and channel with rtn only");
    integer_flags_.push_back(flags.integer("--group-size", {group_, 32, 128}, "Weights of a group: 32, 64 or 128 (default 128)"));
    integer_flags_.push_back(flags.toggle("--asymmetric", asymmetric_, "A minimum beside the scale of each group"));
    outliers_flag_ =
        flags.text("--outliers", outliers_, "PERCENT",
                   "Weights kept in FP16: one number, or first=X,middle=X,head=X for the first eighth of the "
                   "layers, the others, embedding and head (default first=0.05,middle=0.1,head=0.2); auto or auto=...: "
                   "as many in all, each tensor's share from its measured error");
    select_flag_ =
        flags.choice("--select", select_, {"activation", "magnitude"},
                     "Choose outliers and ranges by their effect on calibration text (default), or by size");
    gptq_flags_.push_back(flags.number("--damping", {damping_, 0, 1}, "gptq: added to the Hessian's diagonal, of its mean (default 0.01)"));
    gptq_flags_.push_back(flags.toggle("--no-act-order", no_act_order_, "gptq: columns in their own order instead of by their inputs' size"));
    gptq_flags_.push_back(flags.toggle("--no-true-sequential", no_true_sequential_,
                                       "gptq: all weights of a layer see the inputs of the layer as it was before"));
    calibration_flag_ =
        flags.texts("--calibration", calibration_, "FILE",
                    "Text that the model reads to weigh its inputs, or JSONL of texts or messages; several times: one after the "
                    "other; self: text that the model writes");
    flags.toggle("--calibration-chat", calibration_chat_, "Each text is a user's message in the model's chat template")
        .needs(calibration_flag_);
    flags.text("--chat-template", chat_template_, "FILE", "Messages of calibration: use this Jinja template instead of the model's").needs(calibration_flag_);
    imatrix_flag_ = flags
                        .text("--imatrix", imatrix_, "FILE",
                              "Instead of calibration: an importance matrix of llama.cpp's (GGUF), with outlier and GGUF mixes")
                        .excludes(calibration_flag_);
    save_imatrix_flag_ = flags
                             .text("--save-imatrix", save_imatrix_, "FILE",
                                   "Write what calibration finds as such a file, with outlier, awq and GGUF mixes")
                             .needs(calibration_flag_);
    flags.integer("--samples", {samples_, 1, 1 << 20}, "Stretches of the calibration text (default 16)").needs(calibration_flag_);
    flags.integer("--length", {length_, 16, 1 << 20}, "Tokens of each (default 512)").needs(calibration_flag_);
    flags.text(
        "--tensor-format", overrides_, "PATTERN=FORMAT,...",
        "Another format for tensors of these names, '*' for any characters: f16 and the like stay dense; "
        "embedding and head stay as they are without one");
    target_bytes_flag_ = flags.text("--target-bytes", target_bytes_, "SIZE", "auto: all weights together, as 36GB or 24GiB");
    target_gpu_flag_ = flags
                           .text("--target-gpu", target_gpu_, "SIZE",
                                 "auto: a GPU's memory, for weights, the cache of --users x --context tokens, and workspace")
                           .excludes(target_bytes_flag_);
    flags.integer("--context", {context_, 1, INT32_MAX}, "With --target-gpu: tokens of one user (default 4096)").needs(target_gpu_flag_);
    flags.integer("--users", {users_, 1, 4096}, "With --target-gpu: users at once (default 1)").needs(target_gpu_flag_);
    probe_tokens_flag_ =
        flags.integer("--probe-tokens", {probe_tokens_, 16, 1 << 20},
                      "auto: tokens of the calibration text on which each group of tensors is tried (default 512)");
    flags.choice("--layout", layout_, {"quintet", "gptq", "awq"},
                 "Whose tools read DST: with gptq and awq a Hugging Face folder for them, from one, integers without outliers");
    flags.text("--report", report_, "DIR", "Write report.html there: errors, bits, weights and texts, with plots");
    NamedFiles& files = flags.files();
    files.reads("--calibration", calibration_);
    files.reads("--imatrix", imatrix_);
    files.reads("--chat-template", chat_template_);
    files.makes("DST", destination_);
    files.writes("--save-imatrix", save_imatrix_);
    files.writes("--report", report_, std::string(kReportName));
    flags.toggle("--no-smoke", no_smoke_, "Do not try the result at the end (both models are loaded for it)");
    flags.toggle("--restart", restart_,
                 "Begin anew where a command that was stopped left DST.partial; without it the same command goes on there");
    flags.toggle("--json", json_, "Print one JSON object a tensor, one a line, and one for the whole");
  }

  VerbOutcome run(const CommonOptions& common) override {
    TRY_ASSIGN(QuantizeOptions options, read_options(common));
    const Interrupts interrupts;
    AutoTarget target;
    if (method_ == "auto") {
      TRY_ASSIGN(target, read_target());
    }
    const Status calibration = find_calibration(common, interrupts, options);
    if (interrupts.signal() != 0) return VerbOutcome::ended_by(interrupts.signal());
    TRY(calibration);
    TRY_ASSIGN(const auto backend, make_backend(common.backend));
    Output output;
    if (method_ == "auto") {
      const Status chosen = choose(*backend, interrupts, output, target, options);
      if (interrupts.signal() != 0) return VerbOutcome::ended_by(interrupts.signal());
      TRY(chosen);
    }
    Status printed;
    std::optional<ProgressBar> bar;
    bool worked = false;  // on what DST.partial holds
    const QuantizeHooks hooks{
        .on_tensor =
            [&](const TensorReport& tensor) {
              if (bar) bar->hide();
              if (printed) printed = output.print(json_ ? json_line(tensor) : table_line(tensor));
            },
        .on_warning = [](std::string_view message) { say(fmt::format("quintet quantize: {}", message)); },
        .progress =
            [&](uint64_t done, uint64_t all) {
              worked = true;
              if (!bar) bar.emplace("quantize");
              bar->update(done, all);
              return interrupts.signal() == 0 && printed.has_value();
            }};
    const auto report = quantize_model(source_, destination_, *backend, options, hooks);
    bar.reset();
    TRY(printed);
    std::error_code ignored;
    if (!report && worked && std::filesystem::exists(destination_ + ".partial", ignored))
      say(fmt::format("quintet quantize: {}.partial holds what was done: the same command goes on there", destination_));
    if (interrupts.signal() != 0 && !report) return VerbOutcome::ended_by(interrupts.signal());
    if (!report) return report.error();
    std::optional<SmokeReport> smoke;
    if (!no_smoke_) {
      auto made = smoke_run({.source = source_, .made = destination_, .text = options.calibration_text}, common, interrupts);
      if (interrupts.signal() != 0) return VerbOutcome::ended_by(interrupts.signal());
      // The model is written and whole: that it cannot be tried here (no tokenizer, no memory) is worth a word.
      if (!made) say(fmt::format("quintet quantize: no smoke run: {}", made.error().message));
      if (made) smoke = std::move(made).value();
    }
    if (!report_.empty())
      TRY(write_report(report_, {.source = source_, .destination = destination_, .method = describe(options),
                                 .quantized = *report, .smoke = smoke ? &*smoke : nullptr}));
    if (smoke && !json_) TRY(output.print(smoke_line(*smoke)));
    return output.print(json_ ? json_summary(*report, options, smoke) : table_summary(*report, options));
  }

 private:
  struct AutoTarget {
    uint64_t bytes = 0;  ///< of all weights
    std::string sum;     ///< what a GPU's memory goes to; empty: the command line has the bytes themselves
  };

  Result<AutoTarget> read_target() const {
    AutoTarget target;
    if (!target_gpu_flag_.given()) {
      TRY_ASSIGN(target.bytes, parse_size("--target-bytes", target_bytes_));
      return target;
    }
    TRY_ASSIGN(const uint64_t gpu, parse_size("--target-gpu", target_gpu_));
    TRY_ASSIGN(target.bytes, weight_room(source_, gpu, context_, users_, target.sum));
    return target;
  }

  /// auto: fills in the formats, and says which and why.
  Status choose(Backend& backend, const Interrupts& interrupts, Output& output, const AutoTarget& target,
                QuantizeOptions& options) const {
    ChooseRequest request{.target_bytes = target.bytes, .probe_tokens = probe_tokens_};
    std::optional<ProgressBar> bar;
    request.progress = [&](uint64_t done, uint64_t all) {
      if (!bar) bar.emplace("measure", ProgressBar::Unit::steps);
      bar->update(done, all);
      return interrupts.signal() == 0;
    };
    const auto made = choose_formats(source_, destination_, backend, options, request);
    bar.reset();
    if (!made) return made.error();
    const ChosenFormats& chosen = *made;
    if (chosen.basis == ChoiceBasis::saved)
      say(fmt::format("quintet quantize: {}: the formats that the command before chose, not measured again", destination_));
    if (chosen.basis == ChoiceBasis::room)
      say(fmt::format("quintet quantize: {}: every tensor fits in its best format ({} of {}): nothing is measured", source_,
                      format_bytes(chosen.bytes), format_bytes(request.target_bytes)));
    // What the command line says of single tensors still counts.
    options.overrides.insert(options.overrides.begin(), chosen.overrides.begin(), chosen.overrides.end());
    for (const FormatChoice& choice : chosen.choices)
      TRY(output.print(json_ ? choice_json(choice) : choice_line(choice)));
    if (json_) return {};
    return output.print(fmt::format("{} of {}{}{}\n", format_bytes(chosen.bytes), format_bytes(request.target_bytes),
                                    target.sum.empty() ? "" : " (" + target.sum + ")",
                                    chosen.basis == ChoiceBasis::room
                                        ? ""
                                        : fmt::format(", expected KL {:.4f} if losses add up", chosen.expected_kl)));
  }

  static std::string choice_line(const FormatChoice& c) {
    const std::string line = fmt::format("{:<32} {:<14} {:>10}", c.name, format_info(c.format).name, format_bytes(c.bytes));
    if (c.probe == WeightFormat::f16) return line + "  not tried\n";
    return line + fmt::format("  KL {:.5f} as {}, {:.5f} expected\n", c.probe_kl, format_info(c.probe).name, c.expected_kl);
  }

  static std::string choice_json(const FormatChoice& c) {
    const Json line = {{"choice", c.name},         {"tensors", c.tensors}, {"format", std::string(format_info(c.format).name)},
                       {"bytes", c.bytes},         {"probe", std::string(format_info(c.probe).name)},
                       {"probe_kl", c.probe_kl},   {"expected_kl", c.expected_kl}};
    return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  Status read_method(QuantizeOptions& options) const {
    static constexpr std::pair<std::string_view, QuantizeMethod> kMethods[] = {
        {"rtn", QuantizeMethod::rtn},
        {"outlier", QuantizeMethod::outlier},
        {"gptq", QuantizeMethod::gptq},
        {"gptq+outlier", QuantizeMethod::gptq_outlier},
        {"awq", QuantizeMethod::awq},
        {"auto", QuantizeMethod::gptq},
        {"nf4", QuantizeMethod::direct},
        {"fp8", QuantizeMethod::direct},
        {"int8", QuantizeMethod::direct}};
    options.mix = find_gguf_mix(method_);
    const auto known = std::find_if(std::begin(kMethods), std::end(kMethods),
                                    [&](const auto& row) { return row.first == method_; });
    if (!options.mix && known == std::end(kMethods))
      return bad_input(fmt::format("--method: found '{}', allowed are rtn, outlier, gptq, gptq+outlier, awq, nf4, fp8, int8, auto, {}",
                                   method_, gguf_mix_names()));
    options.method = options.mix ? QuantizeMethod::gguf : known->second;
    if (options.method == QuantizeMethod::direct)  // NF4 as its paper has it, with double quantization
      options.direct = method_ == "nf4" ? WeightFormat::nf4_dq : *format_from_name(method_);
    if (destination_.ends_with(".gguf") != (options.mix != nullptr))
      return bad_input(fmt::format(
          "DST: found '{}', allowed with --method {} is {}", destination_, method_,
          options.mix ? "a name that ends in .gguf" : "the name of a folder, not of a .gguf file"));
    return {};
  }

  /// What the method has no use for is refused, not passed over.
  Status check_flags(const QuantizeOptions& options) const {
    const bool other_formats = options.method == QuantizeMethod::gguf || options.method == QuantizeMethod::direct || method_ == "auto";
    for (const Flag& flag : integer_flags_)
      if (flag.given() && other_formats)
        return bad_input(fmt::format("{}: found it with {}, allowed with rtn, outlier, gptq, gptq+outlier and awq", flag.name(), method_));
    if (probe_tokens_flag_.given() && method_ != "auto")
      return bad_input(fmt::format("--probe-tokens: found it with {}, allowed with auto", method_));
    for (const Flag& flag : gptq_flags_)
      if (flag.given() && !options.is_gptq())
        return bad_input(fmt::format("{}: found it with {}, allowed with gptq, gptq+outlier and auto", flag.name(), method_));
    return {};
  }

  Result<QuantizeOptions> read_options(const CommonOptions& common) const {
    QuantizeOptions options;
    TRY(read_method(options));
    TRY(check_flags(options));
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
      TRY_ASSIGN(const ParsedShares parsed, parse_shares(outliers_));
      options.shares = parsed.shares;
      options.auto_shares = parsed.automatic;
    }
    if ((method_ == "auto") != (target_bytes_flag_.given() || target_gpu_flag_.given()))
      return bad_input(fmt::format("--target-bytes, --target-gpu: found {} with {}, allowed is one of them with auto",
                                   method_ == "auto" ? "neither" : "one", method_));
    TRY_ASSIGN(options.overrides, parse_overrides(overrides_, options.mix != nullptr));
    options.chosen_formats = method_ == "auto";
    options.damping = damping_;
    options.act_order = !no_act_order_;
    options.true_sequential = !no_true_sequential_;
    options.restart = restart_;
    options.plots = !report_.empty();
    options.layout = layout_ == "gptq"  ? FolderLayout::gptq
                     : layout_ == "awq" ? FolderLayout::awq
                                        : FolderLayout::quintet;
    options.samples = samples_;
    options.length = length_;
    options.threads = common.backend.threads;
    options.format.whole_zero = asymmetric_ && options.layout != FolderLayout::quintet;
    options.save_importance = save_imatrix_;
    // The rest is told by check_exchange(), which sees the model.
    if (options.layout != FolderLayout::quintet && method_ != "rtn" && method_ != "gptq" && method_ != "awq")
      return bad_input(
          fmt::format("--method: found {}, allowed with --layout {} is rtn, gptq or awq", method_, layout_));
    if (options.layout == FolderLayout::awq && bits_ != 4)
      return bad_input(fmt::format("--bits: found {}, allowed with --layout awq is 4", bits_));
    TRY(WorkFolder::check(destination_));
    if (!report_.empty()) TRY(check_report_folder(report_));
    return options;
  }

  /// Calibration text or importance matrix, where the method takes one.
  Status find_calibration(const CommonOptions& common, const Interrupts& interrupts, QuantizeOptions& options) const {
    const bool by_moments = options.method == QuantizeMethod::gguf ||
                            (options.method == QuantizeMethod::outlier && options.select == OutlierSelect::activation);
    if (imatrix_flag_.given()) {
      if (!by_moments)
        return bad_input(fmt::format("--imatrix: found it with {}, allowed with outlier (by activation) and GGUF mixes", method_));
      TRY_ASSIGN(options.importance, read_importance(imatrix_));
      return {};
    }
    if (save_imatrix_flag_.given()) {
      if (!by_moments && options.method != QuantizeMethod::awq)
        return bad_input(fmt::format(
            "--save-imatrix: found it with {}, allowed with outlier (by activation), awq and GGUF mixes", method_));
      TRY(check_new_file("--save-imatrix", save_imatrix_));
    }
    if (!options.needs_calibration() && !calibration_flag_.given()) return {};
    if (!calibration_flag_.given())
      return bad_input(fmt::format("--calibration: found nothing, allowed with {} is a file of text, or self{}", method_,
                                   options.is_gptq() || options.method == QuantizeMethod::awq
                                       ? ""
                                       : " (or --select magnitude, which needs none)"));
    TRY_ASSIGN(CalibrationInput input, read_calibration({.files = calibration_,
                                                         .model = source_,
                                                         .chat_template = chat_template_,
                                                         .chat = calibration_chat_,
                                                         .samples = samples_,
                                                         .length = length_},
                                                        common, interrupts));
    options.calibration_text = std::move(input.text);
    options.calibration_special = input.special;
    options.calibration_origin = std::move(input.origin);
    return {};
  }

  /// A name under which a file can be put in place: a regular file or nothing yet, in a folder that is there.
  static Status check_new_file(std::string_view flag, const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code error;
    const auto status = fs::status(path, error);
    if (fs::exists(status) && !fs::is_regular_file(status))
      return bad_input(fmt::format("{}: {}: found no regular file, allowed is the name of one", flag, path));
    return OutputFile::check(path);
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
    if (sums.weights == 0) return fmt::format("{}: {} of weights, none of them compressed\n", destination_, format_bytes(report.bytes));
    return fmt::format(
        "{}: {}, {} of weights ({} before); the compressed ones {:.4f} bits a weight\n", destination_,
        describe(options), format_bytes(report.bytes), format_bytes(report.source_bytes),
        8.0 * static_cast<double>(sums.bytes) / static_cast<double>(sums.weights));
  }

  static Json smoke_json(const SmokeReport& smoke) {
    const auto figures = [](const SmokeFigures& f) {
      return Json{{"tokens", f.tokens}, {"repetition", f.repetition}, {"garbage", f.garbage}, {"ppl", f.ppl}};
    };
    Json json = {{"source", figures(smoke.source)}, {"made", figures(smoke.made)}};
    if (smoke.compared)
      json["distance"] = {{"tokens", smoke.distance.tokens}, {"kl_mean", smoke.distance.kl_mean}, {"top1", smoke.distance.top1}};
    return json;
  }

  std::string json_summary(const QuantizeReport& report, const QuantizeOptions& options,
                           const std::optional<SmokeReport>& smoke) const {
    const Sums sums = sum_of(report);
    Json line = {{"path", destination_},
                       {"method", describe(options)},
                       {"source_bytes", report.source_bytes},
                       {"bytes", report.bytes},
                       {"compressed_weights", sums.weights},
                       {"compressed_bytes", sums.bytes},
                       {"outliers", sums.outliers}};
    if (smoke) line["smoke"] = smoke_json(*smoke);
    return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  std::string source_, destination_, method_ = "outlier", granularity_ = "group", outliers_,
                                     select_ = "activation";
  std::vector<std::string> calibration_;
  std::string overrides_, layout_ = "quintet", target_bytes_, target_gpu_, report_;
  int64_t bits_ = 4, group_ = 128, samples_ = 16, length_ = 512, context_ = 4096, users_ = 1, probe_tokens_ = 512;
  double damping_ = 0.01;
  std::string imatrix_, save_imatrix_, chat_template_;
  bool calibration_chat_ = false, asymmetric_ = false, no_act_order_ = false, no_true_sequential_ = false, restart_ = false, no_smoke_ = false, json_ = false;
  Flag target_bytes_flag_, target_gpu_flag_, probe_tokens_flag_, granularity_flag_, outliers_flag_, select_flag_, calibration_flag_, imatrix_flag_,
      save_imatrix_flag_;
  std::vector<Flag> integer_flags_, gptq_flags_;  ///< of no use to other methods
};

}  // namespace

std::unique_ptr<Verb> make_quantize_verb() { return std::make_unique<QuantizeVerb>(); }

}  // namespace quintet
