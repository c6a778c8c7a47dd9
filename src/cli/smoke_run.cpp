// Opens both models in turn; the source also judges.
#include "cli/smoke_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "cli/generation.h"
#include "cli/session.h"

namespace quintet {
namespace {

constexpr std::array<std::string_view, 4> kPrompts = {
    "The city lies on a river, and its oldest streets", "In 1912 the engineers began to",
    "def mean(values):\n    \"\"\"Returns the mean of a list.\"\"\"\n", "She opened the letter, read it twice, and"};
constexpr int32_t kTokens = 48;
constexpr uint64_t kSeed = 1;
constexpr size_t kRepeated = 4;  // tokens in a row
constexpr int32_t kContext_tokens = 512;
constexpr int32_t kChunk_tokens = 64;


/// A prompt and what was generated behind it.
struct Continuation {
  std::vector<TokenId> prompt, tokens;
};

bool is_garbage(std::string_view piece) {
  if (piece.find("\xEF\xBF\xBD") != piece.npos) return true;
  return std::any_of(piece.begin(), piece.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && byte != '\n' && byte != '\t' && byte != '\r') || byte == 0x7F;
  });
}

Result<std::vector<Continuation>> write_texts(Session& session, const Interrupts& interrupts, SmokeFigures& figures) {
  const Model& model = *session.model;
  const int32_t context = std::min(kContext_tokens, model.config.context);
  TRY(session.start({.context = context, .sequences = 1, .kv_tokens = context, .unread_events = context}));
  std::vector<Continuation> all;
  int64_t repeated = 0, garbage = 0;
  for (const std::string_view prompt : kPrompts) {
    Continuation made{.prompt = model.tokenizer->encode(prompt, {})};
    const int32_t room = context - 1 - static_cast<int32_t>(made.prompt.size());
    if (room < 1) continue;  // models of a few dozen tokens
    Request request{.id = static_cast<RequestId>(all.size() + 1),
                    .prompt = made.prompt,
                    .seed = kSeed,
                    .max_new_tokens = std::min(kTokens, room),
                    .stop_ids = model.stop_ids};
    request.sampling.temperature = 0.8f;
    request.sampling.top_p = 0.95f;
    TRY_ASSIGN(const Generation answer, generate({.engine = *session.engine,
                                                  .tokenizer = *model.tokenizer,
                                                  .request = std::move(request),
                                                  .interrupts = &interrupts}));
    if (interrupts.signal() != 0) return Error{ErrorKind::cancelled, "stopped by a signal"};
    std::set<std::vector<TokenId>> seen;
    for (size_t i = kRepeated; i <= answer.tokens.size(); ++i) {
      const auto end = answer.tokens.begin() + static_cast<std::ptrdiff_t>(i);
      repeated += !seen.emplace(end - kRepeated, end).second;
    }
    // Tokens may end within a character: whole texts tell what is broken.
    Detokenizer text(*model.tokenizer);
    for (const TokenId token : answer.tokens) garbage += is_garbage(text.push(token));
    figures.tokens += static_cast<int64_t>(answer.tokens.size());
    figures.texts.push_back(answer.text);
    made.tokens = answer.tokens;
    all.push_back(std::move(made));
  }
  const auto tokens = static_cast<double>(std::max<int64_t>(figures.tokens, 1));
  figures.repetition = static_cast<double>(repeated) / tokens;
  figures.garbage = static_cast<double>(garbage) / tokens;
  session.engine.reset();
  return all;
}

/// Perplexity of the generated tokens.
Result<double> perplexity(const Session& session, const std::vector<Continuation>& texts) {
  double nll = 0;
  int64_t count = 0;
  const auto vocabulary = static_cast<size_t>(session.model->config.vocabulary);
  for (const Continuation& text : texts) {
    std::vector<TokenId> whole = text.prompt;
    whole.insert(whole.end(), text.tokens.begin(), text.tokens.end());
    TRY(prompt_logits(*session.backend, *session.model, whole, kChunk_tokens,
                      [&](int32_t first, int32_t rows, const float* logits) -> Status {
                        for (int32_t r = 0; r < rows; ++r) {
                          const auto next = static_cast<size_t>(first + r + 1);
                          if (next < text.prompt.size() || next >= whole.size()) continue;
                          nll += score_row({logits + static_cast<size_t>(r) * vocabulary, vocabulary}, whole[next], nullptr).nll;
                          ++count;
                        }
                        return {};
                      }));
  }
  return count > 0 ? std::exp(nll / static_cast<double>(count)) : 0.0;
}

ScoredText cut(const Model& model, const std::string& text, int64_t most) {
  ScoredText scored;
  scored.tokens = model.tokenizer->encode(text, {.add_bos = false});
  if (static_cast<int64_t>(scored.tokens.size()) > most) scored.tokens.resize(static_cast<size_t>(most));
  const TokenizerSpec& spec = model.tokenizer->spec();
  if (spec.add_bos) scored.bos = spec.bos;
  const int32_t context = std::min(kContext_tokens, model.config.context);
  scored.windows = cut_windows(static_cast<int64_t>(scored.tokens.size()), context, context, scored.bos.has_value());
  return scored;
}

}  // namespace

Result<SmokeReport> smoke_run(const SmokeOptions& options, const CommonOptions& common, const Interrupts& interrupts) {
  SmokeReport report;
  const EngineOptions engine{.context = kContext_tokens, .sequences = 1};
  Result<std::vector<Continuation>> written = internal_error("nothing was tried");
  {
    TRY_ASSIGN(Session made, open_session({.path = options.made}, common, {}, engine));
    written = write_texts(made, interrupts, report.made);
  }
  if (!written && interrupts.signal() == 0) {
    TRY_ASSIGN(Session source, open_session({.path = options.source}, common, {}, engine));
    if (const auto own = write_texts(source, interrupts, report.source); !own && interrupts.signal() == 0)
      return Error{own.error().kind, fmt::format("{}, which was so before it was compressed: {}", options.source, own.error().message)};
  }
  TRY_ASSIGN(const std::vector<Continuation> of_made, std::move(written));
  std::optional<LogProbFile> reference;
  {
    TRY_ASSIGN(Session source, open_session({.path = options.source}, common, {}, engine));
    TRY_ASSIGN(const auto of_source, write_texts(source, interrupts, report.source));
    TRY_ASSIGN(report.source.ppl, perplexity(source, of_source));
    TRY_ASSIGN(report.made.ppl, perplexity(source, of_made));
    const ScoredText text = cut(*source.model, options.text, options.text_tokens);
    if (!text.windows.empty()) {
      TRY_ASSIGN(auto file, LogProbFile::create("", {.rows = text.scored_tokens(),
                                                     .vocabulary = source.model->config.vocabulary}));
      reference.emplace(std::move(file));
      TRY(score_text(*source.backend, *source.model, text, {.threads = common.backend.threads, .record = &*reference}));
      TRY(reference->finish());
    }
  }
  if (!reference) return report;
  TRY_ASSIGN(const Session made, open_session({.path = options.made}, common, {}, engine));
  const ScoredText text = cut(*made.model, options.text, options.text_tokens);
  TRY_ASSIGN(TokenScores scores, score_text(*made.backend, *made.model, text,
                                            {.threads = common.backend.threads, .reference = &*reference}));
  report.compared = true;
  report.distance = summarize(scores);
  report.kl = std::move(scores.kl);
  return report;
}

std::string smoke_line(const SmokeReport& report) {
  const SmokeFigures &made = report.made, &source = report.source;
  std::string line = fmt::format(
      "smoke run, {} tokens: repetition {:.1f} % (source {:.1f} %), garbage {:.1f} % ({:.1f} %), perplexity of its texts "
      "as the source reads them {:.1f} ({:.1f})",
      made.tokens, 100 * made.repetition, 100 * source.repetition, 100 * made.garbage, 100 * source.garbage, made.ppl,
      source.ppl);
  if (report.compared)
    line += fmt::format("; on {} tokens of the calibration text KL {:.4f} ({:.4f}-{:.4f}), same top-1 {:.1f} %",
                        report.distance.tokens, report.distance.kl_mean, report.distance.kl_interval.low,
                        report.distance.kl_interval.high, 100 * report.distance.top1);
  return line + "\n";
}

}  // namespace quintet
