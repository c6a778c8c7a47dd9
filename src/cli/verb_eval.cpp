// `quintet eval`: perplexity of a text, and the distance of models from a reference.
#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/fnv1a.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "base/units.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/needle.h"
#include "cli/question_scores.h"
#include "cli/session.h"
#include "cli/task_run.h"
#include "cli/terminal.h"
#include "eval/choices.h"
#include "eval/scores.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDefaultContext_tokens = 512;

/// Tells one set of reference probabilities from another.
class Fingerprint {
 public:
  void add(std::string_view bytes) {
    value_ = fnv1a("\xFF", fnv1a(bytes, value_));  // so that "a", "b" is not "ab"
  }
  void add(int64_t number) { add(fmt::format("{}", number)); }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = fnv1a({});
};

/// What a model is on disk: its files' sizes and times, so that a changed reference is not taken for the old
/// one.
Fingerprint fingerprint_of_model(const std::string& path) {
  namespace fs = std::filesystem;
  Fingerprint print;
  const auto add = [&](const fs::path& file) {
    std::error_code ignored;
    print.add(file.filename().string());
    print.add(static_cast<int64_t>(fs::file_size(file, ignored)));
    print.add(static_cast<int64_t>(fs::last_write_time(file, ignored).time_since_epoch().count()));
  };
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
    files.push_back(entry->path());
  std::sort(files.begin(), files.end());
  if (files.empty()) files.emplace_back(path);
  for (const auto& file : files) add(file);
  return print;
}

/// A figure that --gate bounds.
struct GateFigure {
  std::string_view name;
  bool at_most;  ///< the other way round: at least
  double (*of)(const Summary&);
};
constexpr std::array kGateFigures = {
    GateFigure{"kl", true, [](const Summary& s) { return s.kl_mean; }},
    GateFigure{"kl_p99", true, [](const Summary& s) { return s.kl_p99; }},
    GateFigure{"top1", false, [](const Summary& s) { return s.top1; }},
    GateFigure{"ppl", true, [](const Summary& s) { return s.ppl; }},
    GateFigure{"ppl_ratio", true, [](const Summary& s) { return s.ppl_ratio; }},
};

struct Gate {
  const GateFigure* figure = nullptr;
  double bound = 0;
};

/// "kl=0.05,top1=0.9".
Result<std::vector<Gate>> parse_gates(std::string_view text) {
  std::string names;
  for (const auto& figure : kGateFigures)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", figure.name);
  const auto fault = [&](std::string_view found) {
    return bad_input(fmt::format(
        "--gate: found '{}', allowed are NAME=X with the names {}, separated by commas", found, names));
  };
  std::vector<Gate> gates;
  for (bool more = true; more;) {
    const auto part = text.substr(0, text.find(','));
    more = part.size() < text.size();
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const auto equals = part.find('=');
    if (equals == part.npos) return fault(part);
    Gate gate;
    for (const auto& figure : kGateFigures)
      if (figure.name == part.substr(0, equals)) gate.figure = &figure;
    const auto number = part.substr(equals + 1);
    const auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), gate.bound);
    if (!gate.figure || failed != std::errc() || end != number.data() + number.size()) return fault(part);
    // A share of at most 1; NaN would let everything or nothing through.
    const double most = gate.figure->at_most ? std::numeric_limits<double>::max() : 1;
    if (!(gate.bound >= 0 && gate.bound <= most))
      return bad_input(fmt::format("--gate: {}: found {}, allowed is {}", gate.figure->name, number,
                                   gate.figure->at_most ? "a finite number from 0" : "a number from 0 to 1"));
    for (const Gate& other : gates)
      if (other.figure == gate.figure)
        return bad_input(fmt::format("--gate: found {} twice, allowed is once", gate.figure->name));
    gates.push_back(gate);
  }
  return gates;
}

class EvalVerb : public Verb {
 public:
  std::string_view examples() const override {
    return "  quintet eval model.gguf --perplexity wiki.test.raw\n"
           "  quintet eval model.gguf --perplexity wiki.test.raw --context 2048 --stride 512 --tokens 65536\n"
           "  quintet eval Q4_K_M.gguf int4/ int8/ --kl model-f16.gguf wiki.test.raw\n"
           "  quintet eval int4/ --kl model-f16.gguf wiki.test.raw --gate kl=0.05,top1=0.9 --json\n"
           "  quintet eval int4/ --kl model-f16.gguf wiki.test.raw --reference-cache f16.logp\n"
           "  quintet eval model-f16.gguf int4/ --choices mmlu/data --questions 20\n"
           "  quintet eval model-f16.gguf int4/ --tasks questions.jsonl\n"
           "  quintet eval int4/ --needle 1024,4096\n";
  }

  void declare(FlagSet& flags) override {
    flags.models(paths_);
    perplexity_flag_ = flags.text("--perplexity", perplexity_file_, "FILE", "Perplexity of this text");
    kl_flag_ = flags
                   .text_pair("--kl", kl_, "REFERENCE FILE",
                              "Perplexity of the text, and KL divergence from the reference model on it")
                   .excludes(perplexity_flag_);
    context_flag_ = flags.integer("--context", {context_, 2, INT32_MAX},
                  "Tokens that a model reads at once (default 512, BOS included where the model has one)");
    stride_flag_ = flags.integer("--stride", {stride_, 1, INT32_MAX},
                                 "Tokens from one window to the next (default: the context, so none twice)");
    tokens_flag_ = flags.integer("--tokens", {tokens_, 2, INT64_MAX}, "Only so many tokens of the text, from its beginning");
    cache_flag_ = flags.text("--reference-cache", cache_path_, "FILE",
                             "Keep the reference's probabilities here, or take them from here")
                      .needs(kl_flag_);
    flags
        .toggle("--attribute", attribute_,
                "With --kl: what weights, the cache's format and activations cost each for itself (on the scalar reference: slow; "
                "128 tokens unless --tokens says otherwise)")
        .needs(kl_flag_)
        .excludes(cache_flag_);  // its reference is computed otherwise
    gate_flag_ = flags.text(
        "--gate", gate_, "NAME=X,...",
        "Exit code 1 where a model has more than this kl, kl_p99, ppl or ppl_ratio, or less than this top1");
    choices_flag_ = flags.text("--choices", choices_, "DIR",
                               "Multiple choice: a folder of MMLU or CMMLU as published (dev and test, CSV)")
                        .excludes(perplexity_flag_)
                        .excludes(kl_flag_);
    flags.integer("--shots", {shots_, 0, 100}, "--choices: answered questions in front (default 5)").needs(choices_flag_);
    flags.integer("--questions", {questions_, 1, 1 << 20}, "--choices: only so many of each subject").needs(choices_flag_);
    tasks_flag_ = flags.text("--tasks", tasks_, "FILE.jsonl",
                             "Free answers: a \"prompt\" or \"messages\" and an \"answer\" a line, judged by \"metric\" exact, f1 or number")
                      .excludes(perplexity_flag_)
                      .excludes(kl_flag_)
                      .excludes(choices_flag_);
    flags.toggle("--raw", raw_, "--tasks: continue prompts as they are, without the chat template").needs(tasks_flag_);
    needle_flag_ = flags.integers("--needle", {needle_, 32, INT32_MAX},
                                  "Find a pass key hidden at five depths of texts of so many tokens")
                       .excludes(perplexity_flag_)
                       .excludes(kl_flag_)
                       .excludes(choices_flag_)
                       .excludes(tasks_flag_);
    flags.text("--chat-template", chat_template_, "FILE", "--tasks: use this Jinja template instead of the models'").needs(tasks_flag_);
    // What measures something else than a text has no use for these: they are refused, not passed over.
    for (Flag* other : {&choices_flag_, &tasks_flag_, &needle_flag_})
      for (const Flag& of_text : {gate_flag_, context_flag_, stride_flag_, tokens_flag_}) other->excludes(of_text);
    NamedFiles& files = flags.files();
    files.reads("--perplexity", perplexity_file_);
    files.reads("--kl", kl_.first);
    files.reads("--kl", kl_.second);
    files.reads("--choices", choices_);
    files.reads("--tasks", tasks_);
    files.reads("--chat-template", chat_template_);
    files.writes("--reference-cache", cache_path_);
    flags.toggle("--json", json_, "Print one JSON object a model, one a line");
  }

  VerbOutcome run(const CommonOptions& common) override {
    common_ = common;
    if (choices_flag_.given() || needle_flag_.given() || tasks_flag_.given()) {
      const Interrupts interrupts;
      interrupts_ = &interrupts;
      const Status status = choices_flag_.given() ? measure_choices() : tasks_flag_.given() ? measure_tasks() : measure_needle();
      if (interrupts.signal() != 0) return VerbOutcome::ended_by(interrupts.signal());
      return status;
    }
    if (!perplexity_flag_.given() && !kl_flag_.given())
      return bad_input("nothing to measure, allowed are --perplexity FILE, --kl REFERENCE FILE, --choices DIR, --tasks FILE and --needle N");
    if (stride_flag_.given() && stride_ > context_)
      return bad_input(
          fmt::format("--stride: found {}, allowed are 1 to {} (the context)", stride_, context_));
    if (gate_flag_.given()) {
      TRY_ASSIGN(gates_, parse_gates(gate_));
    }
    for (const Gate& gate : gates_)
      if (gate.figure->name != "ppl" && !kl_flag_.given())
        return bad_input(fmt::format("--gate: {} needs --kl REFERENCE FILE", gate.figure->name));
    const std::string& file = kl_flag_.given() ? kl_.second : perplexity_file_;
    TRY_ASSIGN(text_, read_text(file, "text"));
    if (const size_t at = find_broken_utf8(text_); at != std::string::npos)
      return bad_input(fmt::format("{}: byte {} is no UTF-8, allowed is a text in UTF-8", file, at));

    if (!cache_path_.empty()) TRY(OutputFile::check(cache_path_));

    const Interrupts interrupts;
    interrupts_ = &interrupts;
    const Status status = attribute_ ? measure_attribution() : measure();
    if (interrupts.signal() != 0) return VerbOutcome::ended_by(interrupts.signal());
    if (!status) return status;
    VerbOutcome outcome;
    outcome.missed = missed_;
    return outcome;
  }

 private:
  /// Reads all of every model but its weights, and checks it, so that no fault comes after hours with the models before.
  Status check_models(const LoadOptions& load, const std::function<Status(const Model&)>& check) const {
    std::set<std::string> seen;
    for (const std::string& path : paths_) {
      if (!seen.insert(path).second) continue;
      TRY_ASSIGN(const auto model, load_text(path, load));
      if (model->config.layers == 0) return bad_input(fmt::format("{}: found a vocabulary without weights, allowed is a model", path));
      TRY(check(*model));
    }
    return {};
  }

  /// Accuracy by subject and in all, the interval over questions.
  Status measure_choices() {
    TRY_ASSIGN(const ChoiceSet set, read_choices(choices_));
    TRY(check_models({}, [](const Model&) { return Status(); }));
    Output output;
    std::vector<float> first;
    for (const std::string& path : paths_) {
      LoadOptions load;
      TRY_ASSIGN(const Session session, open_session({.path = path}, common_, load, {.sequences = 1}));
      ProgressBar bar(path, ProgressBar::Unit::tokens);
      TRY_ASSIGN(const auto scores,
                 score_choices(*session.backend, *session.model, set,
                               {.shots = static_cast<int>(shots_), .questions = questions_, .progress = [&](int64_t done, int64_t all) {
                                  bar.update(static_cast<uint64_t>(done), static_cast<uint64_t>(all));
                                  return interrupts_->signal() == 0;
                                }}));
      QuestionScores questions{.kind = "accuracy", .groups_name = "subjects"};
      for (const ChoiceScore& score : scores)
        for (const float right : score.right) questions.add(score.subject, right);
      TRY(output.print(print_questions(questions, {.path = path, .bytes = session.model->file_bytes, .beside = paths_.front(), .json = json_}, first)));
    }
    return {};
  }

  /// Scores by task and in all, and what each model has more or less than the first on the same questions.
  Status measure_tasks() {
    TRY_ASSIGN(const std::string lines, read_text(tasks_, "questions"));
    TRY_ASSIGN(const auto asked, parse_tasks(lines, tasks_));
    LoadOptions load;
    load.chat_template_path = chat_template_;
    TRY(check_models(load, [&](const Model& model) -> Status {
      TRY(encode_tasks(model, asked, raw_));
      return {};
    }));
    Output output;
    std::vector<float> first;
    for (const std::string& path : paths_) {
      TRY_ASSIGN(Session session, open_session({.path = path}, common_, load, {.sequences = 1}));
      ProgressBar bar(path, ProgressBar::Unit::tokens);
      uint64_t all = 0;
      for (const TaskQuestion& question : asked) all += static_cast<uint64_t>(question.max_tokens);
      const TaskRunOptions options{.raw = raw_, .on_tokens = [&](uint64_t done) { bar.update(std::min(done, all), all); }};
      TRY_ASSIGN(const auto answers, ask_tasks(session, asked, options, *interrupts_));
      QuestionScores questions{.kind = "score", .groups_name = "tasks"};
      for (size_t i = 0; i < asked.size(); ++i) {
        const std::string metric(metric_name(asked[i].metric)), group = asked[i].task.empty() ? metric : asked[i].task;
        questions.add(group, answers[i].score);
        questions.metrics[group].insert(metric);
        questions.answers.push_back(answers[i].text);
      }
      TRY(output.print(print_questions(questions, {.path = path, .bytes = session.model->file_bytes, .beside = paths_.front(), .json = json_}, first)));
    }
    return {};
  }

  /// A pass key at five depths of each length.
  Status measure_needle() {
    const auto longest = *std::max_element(needle_.begin(), needle_.end());
    TRY(check_models({}, [&](const Model& model) {
      if (longest <= model.config.context) return Status();
      return Status(bad_input(fmt::format("--needle: found {}, allowed are at most {} (what {} was made for)", longest,
                                          model.config.context, model.path)));
    }));
    Output output;
    for (const std::string& path : paths_) {
      TRY_ASSIGN(Session session, open_session({.path = path}, common_, {}, {.context = static_cast<int32_t>(longest), .sequences = 1}));
      TRY_ASSIGN(const auto found, find_needles(session, needle_, *interrupts_));
      Json lengths = Json::object();
      std::string text;
      for (const NeedleResult& result : found) {
        lengths[fmt::format("{}", result.tokens)] = static_cast<double>(result.found) / result.asked;
        text += fmt::format("{:>8} tokens: {} of {} pass keys  {}\n", result.tokens, result.found, result.asked, path);
      }
      const Json line = {{"path", path}, {"bytes", session.model->file_bytes}, {"needle", lengths}};
      TRY(output.print(json_ ? line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n" : text));
    }
    return {};
  }

  static std::string bos_name(const ScoredText& text) { return text.bos ? fmt::format("BOS {}", *text.bos) : "no BOS"; }

  /// The models' tokens of the text are the reference's, or bad_input.
  Status check_same_text(const Model& model) const {
    TRY_ASSIGN(const ScoredText text, cut(model));
    const auto& found = text.tokens;
    const auto& allowed = reference_text_.tokens;
    if (found.size() != allowed.size())
      return bad_input(fmt::format("{}: found {} tokens in the text, allowed are {} as in {}: the same tokenizer", model.path, found.size(),
                                   allowed.size(), kl_.first));
    if (const auto [at, other] = std::mismatch(found.begin(), found.end(), allowed.begin()); at != found.end())
      return bad_input(fmt::format("{}: found other ids than {}'s: token {} of the text is {}, allowed is {}: the same tokenizer",
                                   model.path, kl_.first, at - found.begin(), *at, *other));
    if (text.bos != reference_text_.bos)
      return bad_input(fmt::format("{}: found {} in front of windows, allowed is {} as in {}: the same tokenizer", model.path, bos_name(text),
                                   bos_name(reference_text_), kl_.first));
    if (model.config.vocabulary != reference_vocabulary_)
      return bad_input(fmt::format("{}: found a vocabulary of {}, allowed is {}, the reference's", model.path, model.config.vocabulary,
                                   reference_vocabulary_));
    return {};
  }

  Status measure() {
    if (!kl_flag_.given() && paths_.size() > 1)
      TRY(check_models(load_options(), [&](const Model& model) -> Status {
        TRY(cut(model));
        return {};
      }));
    std::optional<LogProbFile> reference;
    if (kl_flag_.given()) {
      TRY_ASSIGN(auto file, reference_rows());
      reference.emplace(std::move(file));
    }
    Output output;
    bool head = !json_;
    for (const std::string& path : paths_) {
      TRY_ASSIGN(const Session session, open_session({.path = path}, common_, load_options(), engine_options()));
      TRY_ASSIGN(const ScoredText text, cut(*session.model));
      TRY_ASSIGN(const TokenScores scores,
                 score(session, text, reference ? &*reference : nullptr, nullptr, path));
      const Summary summary = summarize(scores);
      if (std::exchange(head, false)) TRY(output.print(table_head(summary.compared)));
      TRY(output.print(json_ ? json_line(path, *session.model, summary) + "\n"
                             : table_row(path, *session.model, summary)));
      check_gates(path, summary);
    }
    return {};
  }

  struct Distance {
    Summary summary;
    uint64_t file_bytes;  ///< of the model
    DType kv;             ///< of the device's cache
  };
  /// KL from the reference model, computed exactly, of a model on a device; `record`: keeps the reference's rows.
  Result<Distance> distance_on(const BackendOptions& device, const std::string& path, LogProbFile* reference, LogProbFile* record) const {
    CommonOptions common = common_;
    common.backend = device;
    TRY_ASSIGN(const Session session, open_session({.path = path}, common, load_options(), engine_options()));
    TRY_ASSIGN(const TokenScores scores, score(session, reference_text_, reference, record, fmt::format("{} ({})", path, device.device)));
    return Distance{.summary = summarize(scores), .file_bytes = session.model->file_bytes, .kv = session.backend->info().kv};
  }

  /// Each source of loss alone, the others exact. Exact: the scalar reference, which computes and keeps all in F32 and more.
  Status measure_attribution() {
    constexpr int64_t kTokens = 128;
    if (tokens_ == 0) tokens_ = kTokens;
    BackendOptions exact = common_.backend, rounded;
    exact.device = "reference";
    exact.reference_kv = DType::f32;
    {
      TRY_ASSIGN(const auto text_model, load_text(kl_.first, load_options()));
      TRY_ASSIGN(reference_text_, cut(*text_model));
      reference_vocabulary_ = text_model->config.vocabulary;
    }
    TRY(check_models(load_options(), [&](const Model& model) { return check_same_text(model); }));
    TRY_ASSIGN(LogProbFile rows, LogProbFile::create("", {.rows = reference_text_.scored_tokens(), .vocabulary = reference_vocabulary_}));
    TRY(distance_on(exact, kl_.first, nullptr, &rows));
    TRY(rows.finish());
    rounded = exact;
    TRY_ASSIGN(const Distance device, distance_on(common_.backend, kl_.first, &rows, nullptr));
    rounded.reference_kv = device.kv;
    TRY_ASSIGN(const Distance rounded_kv, distance_on(rounded, kl_.first, &rows, nullptr));
    const Summary& kv = rounded_kv.summary;
    Output output;
    if (!json_)
      TRY(output.print(fmt::format("{:>12} {:>12} {:>12} {:>12}  model\n", "weights", fmt::format("KV in {}", dtype_name(rounded.reference_kv)),
                                   "activations", "all")));
    for (const std::string& path : paths_) {
      TRY_ASSIGN(const Distance by_weights, distance_on(exact, path, &rows, nullptr));
      TRY_ASSIGN(const Distance whole, distance_on(common_.backend, path, &rows, nullptr));
      const Summary &weights = by_weights.summary, &all = whole.summary;
      const double activations = std::max(0.0, device.summary.kl_mean - kv.kl_mean);
      Json line = json_of(path, whole.file_bytes, all);
      line["kl_weights"] = weights.kl_mean;
      line["kl_kv"] = kv.kl_mean;
      line["kv_format"] = dtype_name(rounded.reference_kv);
      line["kl_activations"] = activations;
      TRY(output.print(json_ ? line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"
                             : fmt::format("{:>12.7f} {:>12.7f} {:>12.7f} {:>12.7f}  {}\n", weights.kl_mean, kv.kl_mean,
                                           activations, all.kl_mean, path)));
      check_gates(path, all);
    }
    return {};
  }

  LoadOptions load_options() const {
    LoadOptions options;
    options.context = static_cast<int32_t>(context_);
    return options;
  }

  /// What one window takes.
  EngineOptions engine_options() const { return {.context = static_cast<int32_t>(context_), .sequences = 1}; }

  Result<ScoredText> cut(const Model& model) const {
    TRY(check_context(context_, model));
    ScoredText text;
    if (!model.tokenizer)
      return bad_input(fmt::format("{}: found no tokenizer, allowed is a model with one", model.path));
    text.tokens = model.tokenizer->encode(text_, {.add_bos = false});
    const TokenizerSpec& spec = model.tokenizer->spec();
    if (spec.add_bos) text.bos = spec.bos;
    if (tokens_ > 0 && static_cast<int64_t>(text.tokens.size()) > tokens_)
      text.tokens.resize(static_cast<size_t>(tokens_));
    const int64_t stride = stride_flag_.given() ? stride_ : context_;
    text.windows = cut_windows(static_cast<int64_t>(text.tokens.size()), static_cast<int32_t>(context_),
                               static_cast<int32_t>(stride), text.bos.has_value());
    if (text.windows.empty())
      return bad_input(fmt::format("text: found {} tokens, allowed are {} and more", text.tokens.size(),
                                   text.bos ? 1 : 2));
    return text;
  }

  Result<TokenScores> score(const Session& session, const ScoredText& text, LogProbFile* reference,
                            LogProbFile* record, const std::string& label) const {
    ProgressBar bar(label, ProgressBar::Unit::tokens);
    return score_text(*session.backend, *session.model, text,
                      {.threads = common_.backend.threads,
                       .reference = reference,
                       .record = record,
                       .progress = [&](int64_t done, int64_t total) {
                         bar.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
                         return interrupts_->signal() == 0;
                       }});
  }

  /// The reference's probabilities: from the cache where it has them, else from the model. Only text and
  /// tokenizer of the reference are loaded in the first case.
  Result<LogProbFile> reference_rows() {
    TRY_ASSIGN(const auto text_model, load_text(kl_.first, load_options()));
    TRY_ASSIGN(reference_text_, cut(*text_model));
    reference_vocabulary_ = text_model->config.vocabulary;
    TRY(check_models(load_options(), [&](const Model& model) { return check_same_text(model); }));
    Fingerprint key = fingerprint_of_model(kl_.first);
    for (const TokenId token : reference_text_.tokens) key.add(int64_t{token});
    for (const Window& window : reference_text_.windows) key.add(window.begin * 31 + window.scored);
    const LogProbFile::Shape shape{.key = key.value(),
                                   .rows = reference_text_.scored_tokens(),
                                   .vocabulary = text_model->config.vocabulary};
    if (!cache_path_.empty()) {
      auto cached = LogProbFile::open(cache_path_, shape);
      if (cached || cached.error().kind != ErrorKind::not_found) return cached;
    }
    TRY_ASSIGN(const Session session, open_session({.path = kl_.first}, common_, load_options(), engine_options()));
    TRY_ASSIGN(LogProbFile file, LogProbFile::create(cache_path_, shape));
    TRY(score(session, reference_text_, nullptr, &file, kl_.first));
    TRY(file.finish());
    if (cache_path_.empty()) return file;
    return LogProbFile::open(cache_path_, shape);
  }

  void check_gates(const std::string& path, const Summary& summary) {
    for (const Gate& gate : gates_) {
      const double found = gate.figure->of(summary);
      if (gate.figure->at_most ? found <= gate.bound : found >= gate.bound) continue;
      missed_ = true;
      say(fmt::format("quintet eval: {}: {} is {:.6g}, the gate allows at {} {:.6g}", path, gate.figure->name,
                      found, gate.figure->at_most ? "most" : "least", gate.bound));
    }
  }

  static std::string table_head(bool compared) {
    std::string head = fmt::format("{:>10} {:>8} {:>26}", "bytes", "tokens", "ppl (95 %)");
    if (compared)
      head += fmt::format(" {:>28} {:>9} {:>9} {:>22} {:>24}", "KL (95 %)", "p99", "max", "same top-1 (95 %)",
                          "ppl ratio (95 %)");
    return head + "  model\n";
  }

  static std::string table_row(const std::string& path, const Model& model, const Summary& s) {
    const auto with_interval = [](double value, const Interval& interval, int digits) {
      return fmt::format("{:.{}f} ({:.{}f}-{:.{}f})", value, digits, interval.low, digits, interval.high,
                         digits);
    };
    std::string row = fmt::format("{:>10} {:>8} {:>26}", format_bytes(model.file_bytes), s.tokens,
                                  with_interval(s.ppl, s.ppl_interval, 3));
    if (s.compared)
      row +=
          fmt::format(" {:>28} {:>9.5f} {:>9.4f} {:>22} {:>24}", with_interval(s.kl_mean, s.kl_interval, 6),
                      s.kl_p99, s.kl_max, with_interval(s.top1, s.top1_interval, 3),
                      with_interval(s.ppl_ratio, s.ppl_ratio_interval, 4));
    return row + "  " + path + "\n";
  }

  static Json json_of(const std::string& path, uint64_t file_bytes, const Summary& s) {
    const auto interval = [](const Interval& i) { return Json::array({i.low, i.high}); };
    Json line = {{"path", path},
                 {"bytes", file_bytes},
                 {"tokens", s.tokens},
                 {"ppl", s.ppl},
                 {"ppl_ci", interval(s.ppl_interval)}};
    if (s.compared) {
      line["kl_mean"] = s.kl_mean;
      line["kl_ci"] = interval(s.kl_interval);
      line["kl_p99"] = s.kl_p99;
      line["kl_max"] = s.kl_max;
      line["top1"] = s.top1;
      line["top1_ci"] = interval(s.top1_interval);
      line["ppl_ratio"] = s.ppl_ratio;
      line["ppl_ratio_ci"] = interval(s.ppl_ratio_interval);
    }
    return line;
  }
  static std::string json_line(const std::string& path, const Model& model, const Summary& s) {
    return json_of(path, model.file_bytes, s).dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  std::vector<std::string> paths_;
  std::string perplexity_file_, cache_path_, gate_, choices_, tasks_, chat_template_;
  bool raw_ = false, attribute_ = false;
  int32_t reference_vocabulary_ = 0;
  std::vector<int64_t> needle_;
  int64_t shots_ = 5, questions_ = 0;
  std::pair<std::string, std::string> kl_;
  int64_t context_ = kDefaultContext_tokens, stride_ = 0, tokens_ = 0;
  bool json_ = false;
  Flag perplexity_flag_, kl_flag_, context_flag_, stride_flag_, tokens_flag_, cache_flag_, gate_flag_, choices_flag_, needle_flag_,
      tasks_flag_;

  CommonOptions common_;
  const Interrupts* interrupts_ = nullptr;
  std::string text_;
  std::vector<Gate> gates_;
  ScoredText reference_text_;
  bool missed_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_eval_verb() { return std::make_unique<EvalVerb>(); }

}  // namespace quintet
