// The chain of normalizers, as Hugging Face tokenizers run it.
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "text/regex.h"
#include "text/tokenizer_pre.h"
#include "text/unicode.h"
#include "text/unigram_charsmap.h"

namespace quintet {

using Kind = NormalizerStep::Kind;

struct Normalizer::Impl {
  struct Compiled {
    NormalizerStep step;
    std::optional<Regex> regex;
    std::optional<Charsmap> charsmap;
  };
  std::vector<Compiled> steps;
};

Normalizer::Normalizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Normalizer::Normalizer(Normalizer&&) noexcept = default;
Normalizer& Normalizer::operator=(Normalizer&&) noexcept = default;
Normalizer::~Normalizer() = default;

bool Normalizer::empty() const { return impl_->steps.empty(); }

Result<Normalizer> Normalizer::compile(const TokenizerSpec& spec) {
  auto impl = std::make_unique<Impl>();
  if (spec.normalizers.size() > 64) {
    return bad_input(
        fmt::format("{}: {} normalizer steps; allowed are 64", spec.origin, spec.normalizers.size()));
  }
  size_t growth = 1;  // how many bytes one byte may become, all steps together
  for (const NormalizerStep& step : spec.normalizers) {
    auto& compiled = impl->steps.emplace_back();
    compiled.step = step;
    if (!is_valid_utf8(step.pattern) || !is_valid_utf8(step.content)) {
      return bad_input(fmt::format("{}: a normalizer's pattern or content is not UTF-8", spec.origin));
    }
    if (step.kind == Kind::replace) {
      if (step.pattern.empty())
        return bad_input(fmt::format("{}: a Replace normalizer has an empty pattern", spec.origin));
      growth *= std::max<size_t>(1, step.content.size());
      if (growth > 4096) {
        return bad_input(
            fmt::format("{}: the Replace normalizers may grow a text more than 4096 times", spec.origin));
      }
      if (step.regex) {
        auto regex = Regex::compile(step.pattern, Regex::Effort::linear);
        if (!regex) return bad_input(fmt::format("{}: normalizer: {}", spec.origin, regex.error().message));
        compiled.regex = std::move(regex).value();
      }
    } else if (step.kind == Kind::prepend && step.content.size() > 64) {
      return bad_input(fmt::format("{}: a Prepend normalizer of {} bytes; allowed are 64", spec.origin,
                                   step.content.size()));
    } else if (step.kind == Kind::charsmap) {
      auto charsmap = Charsmap::parse(spec.precompiled_charsmap);
      if (!charsmap)
        return bad_input(fmt::format("{}: precompiled_charsmap: {}", spec.origin, charsmap.error().message));
      compiled.charsmap = std::move(charsmap).value();
    }
  }
  return Normalizer(std::move(impl));
}

namespace {

std::string replace_literal(std::string_view text, const NormalizerStep& step) {
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  size_t from = 0;
  while (true) {
    const size_t at = text.find(step.pattern, from);
    if (at == std::string_view::npos) break;
    out.append(text, from, at - from);
    out += step.content;
    from = at + step.pattern.size();
  }
  out += text.substr(from);
  return out;
}

std::string replace_regex(std::string_view text, const NormalizerStep& step, const Regex& regex) {
  std::string out;
  Regex::Matcher matcher(regex);
  matcher.start(text);
  Regex::Match match;
  size_t from = 0;
  while (matcher.next(match)) {
    out.append(text, from, match.begin - from);
    out += step.content;
    from = match.end;
  }
  out += text.substr(from);
  return out;
}

std::string_view strip(std::string_view text, const NormalizerStep& step) {
  if (step.left) {
    size_t at = 0;
    while (at < text.size()) {
      const Utf8Char character = decode_utf8(text, at);
      if (!is_unicode_space(character.code_point)) break;
      at += character.bytes;
    }
    text.remove_prefix(at);
  }
  if (step.right) {
    while (!text.empty()) {
      size_t at = text.size() - 1;
      while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
      if (!is_unicode_space(decode_utf8(text, at).code_point)) break;
      text = text.substr(0, at);
    }
  }
  return text;
}

}  // namespace

std::string Normalizer::run(std::string_view text) const {
  std::string current(text);
  for (const auto& compiled : impl_->steps) {
    const NormalizerStep& step = compiled.step;
    switch (step.kind) {
      case Kind::nfc: current = normalize_unicode(current, NormalForm::nfc); break;
      case Kind::nfd: current = normalize_unicode(current, NormalForm::nfd); break;
      case Kind::nfkc: current = normalize_unicode(current, NormalForm::nfkc); break;
      case Kind::nfkd: current = normalize_unicode(current, NormalForm::nfkd); break;
      case Kind::lowercase: current = lowercase_unicode(current); break;
      case Kind::replace:
        current =
            compiled.regex ? replace_regex(current, step, *compiled.regex) : replace_literal(current, step);
        break;
      case Kind::prepend:
        if (!current.empty()) current.insert(0, step.content);
        break;
      case Kind::strip: current = std::string(strip(current, step)); break;
      case Kind::charsmap: current = compiled.charsmap->run(current); break;
    }
  }
  return current;
}

}  // namespace quintet
