// `quintet convert`: a Hugging Face folder into a GGUF file.
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "compress/convert_model.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

class ConvertVerb : public Verb {
 public:
  std::string_view examples() const override {
    return "  quintet convert Qwen2.5-7B/ qwen2.5-7b-f16.gguf\n"
           "  quintet convert Llama-3.1-8B/ llama-bf16.gguf --type bf16\n"
           "  quintet convert SmolLM2/ smollm2-q8_0.gguf --type q8_0 --json\n";
  }

  void declare(FlagSet& flags) override {
    flags.model(source_);
    flags.positional("OUT", destination_, "The GGUF file to write, which must not exist yet");
    flags.files().makes("OUT", destination_);
    flags.choice("--type", type_, {"f16", "bf16", "q8_0"},
                 "Format of the matrices (default f16); vectors are written as f32");
    flags.toggle("--json", json_, "Print one JSON object a tensor, one a line, and one for the whole");
  }

  VerbOutcome run(const CommonOptions& common) override {
    if (!destination_.ends_with(".gguf"))
      return bad_input(
          fmt::format("OUT: found '{}', allowed is a name that ends in .gguf", destination_));
    const Interrupts interrupts;
    Output output;
    Status printed;
    std::optional<ProgressBar> bar;
    const ConvertHooks hooks{
        .on_tensor =
            [&](const ConvertedTensor& tensor) {
              bar.reset();
              if (printed) printed = output.print(json_ ? json_line(tensor) : table_line(tensor));
            },
        .on_warning = [](std::string_view message) { say(fmt::format("quintet convert: {}", message)); },
        .progress =
            [&](uint64_t done, uint64_t all) {
              if (!bar) bar.emplace("convert");
              bar->update(done, all);
              return interrupts.signal() == 0 && printed.has_value();
            }};
    const auto report = convert_model(
        source_, destination_,
        {.format = format_from_name(type_).value_or(WeightFormat::f16), .threads = common.backend.threads}, hooks);
    bar.reset();
    TRY(printed);
    if (interrupts.signal() != 0 && !report) return VerbOutcome::ended_by(interrupts.signal());
    if (!report) return report.error();
    return output.print(json_ ? json_summary(*report) : table_summary(*report));
  }

 private:
  static std::string shape_text(const std::vector<int64_t>& shape) {
    std::string text;
    for (const int64_t size : shape) text += fmt::format("{}{}", text.empty() ? "" : " x ", size);
    return text;
  }

  static std::string table_line(const ConvertedTensor& t) {
    return fmt::format("{:<36} {:>16}  {:>4} -> {:<5} {}\n", t.name, shape_text(t.shape),
                       t.source.empty() ? "" : format_info(t.from).name, format_info(t.to).name, t.source);
  }

  static std::string json_line(const ConvertedTensor& t) {
    const Json line = {{"tensor", t.name},
                       {"source", t.source},
                       {"shape", t.shape},
                       {"from", std::string(format_info(t.from).name)},
                       {"to", std::string(format_info(t.to).name)}};
    return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  std::string table_summary(const ConvertReport& r) const {
    return fmt::format(
        "{}: {}, {} layers, hidden {}, feed-forward {}, {} heads of {} over {} for keys and values, vocabulary {}, "
        "context {}; {} weights, {} ({} before)\n",
        destination_, r.architecture, r.layers, r.hidden, r.ffn, r.heads, r.head_dim, r.kv_heads, r.vocabulary,
        r.context, r.weights, format_bytes(r.bytes), format_bytes(r.source_bytes));
  }

  std::string json_summary(const ConvertReport& r) const {
    const Json line = {{"path", destination_},      {"architecture", r.architecture},
                       {"type", type_},             {"layers", r.layers},
                       {"hidden", r.hidden},        {"ffn", r.ffn},
                       {"heads", r.heads},          {"kv_heads", r.kv_heads},
                       {"head_dim", r.head_dim},    {"vocabulary", r.vocabulary},
                       {"context", r.context},      {"weights", r.weights},
                       {"source_bytes", r.source_bytes}, {"bytes", r.bytes}};
    return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  std::string source_, destination_, type_ = "f16";
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_convert_verb() { return std::make_unique<ConvertVerb>(); }

}  // namespace quintet
