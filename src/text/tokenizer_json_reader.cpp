// A SAX handler that takes model.vocab and model.merges out of the stream and builds a tree of the rest.
#include "text/tokenizer_json_reader.h"

#include <fmt/format.h>

#include <utility>

#include "base/json_parse.h"
#include "text/tokenizer_limits.h"

namespace quintet {

using Json = nlohmann::json;

TokenizerJson::TokenizerJson() : rest(std::make_unique<Json>(Json::object())) {}
TokenizerJson::TokenizerJson(TokenizerJson&&) noexcept = default;
TokenizerJson& TokenizerJson::operator=(TokenizerJson&&) noexcept = default;
TokenizerJson::~TokenizerJson() = default;

namespace {

constexpr size_t kMaxDepth = 32;

class Handler final : public nlohmann::json_sax<Json> {
 public:
  explicit Handler(TokenizerJson& out) : out_(out) {}
  const std::string& error() const { return error_; }

  bool null() override { return value(nullptr, "null"); }
  bool boolean(bool v) override { return value(v, "a boolean"); }
  bool number_integer(number_integer_t v) override { return number(v, static_cast<double>(v)); }
  bool number_unsigned(number_unsigned_t v) override {
    if (v > static_cast<number_unsigned_t>(INT64_MAX)) return fail(fmt::format("{} is {}", where(), v));
    return number(static_cast<int64_t>(v), static_cast<double>(v));
  }
  bool number_float(number_float_t v, const string_t&) override {
    if (part_ == Part::scored && field_ == 1) {
      out_.vocabulary.back().score = v;
      ++field_;
      return true;
    }
    return value(v, "a fraction");
  }
  bool string(string_t& v) override {
    switch (part_) {
      case Part::scored:
        if (!in_entry_ || field_ != 0) break;
        out_.vocabulary.back().text = std::move(v);
        ++field_;
        return true;
      case Part::merges: return merge(v);
      default: break;
    }
    return value(std::move(v), "a string");
  }
  bool binary(binary_t&) override { return fail("binary data"); }

  bool start_object(size_t) override {
    if (part_ != Part::rest) return unexpected("an object");
    if (at("model", "vocab")) {
      part_ = Part::ids;
      return once(seen_vocabulary_);
    }
    return open(Json::object());
  }
  bool key(string_t& v) override {
    if (part_ == Part::ids) {
      if (out_.vocabulary.size() >= kMaxVocabulary) return too_many("model.vocab", kMaxVocabulary);
      out_.vocabulary.push_back({.text = std::move(v)});
      return true;
    }
    keys_.back() = std::move(v);
    return true;
  }
  bool end_object() override {
    if (part_ == Part::ids) return leave();
    return close();
  }

  bool start_array(size_t) override {
    if (part_ == Part::scored || part_ == Part::merges) {
      if (in_entry_) return unexpected("a list");
      in_entry_ = true;
      field_ = 0;
      if (part_ == Part::scored && out_.vocabulary.size() >= kMaxVocabulary)
        return too_many("model.vocab", kMaxVocabulary);
      if (part_ == Part::scored) out_.vocabulary.emplace_back();
      return true;
    }
    if (part_ != Part::rest) return unexpected("a list");
    if (at("model", "vocab")) {
      part_ = Part::scored;
      out_.vocabulary_has_scores = true;
      return once(seen_vocabulary_);
    }
    if (at("model", "merges")) {
      part_ = Part::merges;
      return once(seen_merges_);
    }
    return open(Json::array());
  }
  bool end_array() override {
    if (part_ == Part::rest) return close();
    if (!in_entry_) return leave();
    in_entry_ = false;
    if (field_ == 2) return true;
    return fail(part_ == Part::scored
                    ? fmt::format("model.vocab: entry {} is not [text, score]", out_.vocabulary.size() - 1)
                    : fmt::format("model.merges: entry {} is not [left, right]", out_.merges.size()));
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& problem) override {
    return fail(fmt::format("not JSON at byte {}: {}", position, json_reason(problem)));
  }

 private:
  enum class Part { rest, ids, scored, merges };

  bool fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }
  bool too_many(std::string_view where, size_t allowed) {
    return fail(fmt::format("{}: more than {} entries; allowed are {}", where, allowed, allowed));
  }
  std::string where() const {
    switch (part_) {
      case Part::ids:
        return fmt::format("model.vocab: the id of '{}'", out_.vocabulary.back().text.substr(0, 80));
      case Part::scored:
        return fmt::format("model.vocab: entry {}", out_.vocabulary.size() - (in_entry_ ? 1 : 0));
      case Part::merges: return fmt::format("model.merges: entry {}", out_.merges.size());
      case Part::rest: break;
    }
    std::string path;
    for (const auto& key : keys_) {
      if (!path.empty() && !key.empty()) path += '.';
      path += key;
    }
    return path.empty() ? "the text" : path;
  }
  bool unexpected(std::string_view found) {
    std::string_view allowed = "an id, a whole number";
    if (part_ == Part::scored) allowed = "a list of text and score";
    if (part_ == Part::merges) allowed = "a string with a space or a list of two strings";
    return fail(fmt::format("{} is {}; allowed is {}", where(), found, allowed));
  }

  /// The value of `second` in the object `first` of the outermost one is about to come.
  bool at(std::string_view first, std::string_view second) const {
    return tree_.size() == 2 && tree_[0]->is_object() && tree_[1]->is_object() && keys_[0] == first &&
           keys_[1] == second;
  }
  bool once(bool& seen) {
    if (std::exchange(seen, true)) return fail("model.vocab or model.merges is there twice");
    return true;
  }
  bool leave() {
    part_ = Part::rest;
    return true;
  }

  bool number(int64_t whole, double real) {
    if (part_ == Part::ids) {
      out_.vocabulary.back().id = whole;
      return true;
    }
    if (part_ == Part::scored && field_ == 1) {
      out_.vocabulary.back().score = real;
      ++field_;
      return true;
    }
    return value(whole, "a number");
  }

  bool merge(std::string& text) {
    if (out_.merges.size() >= kMaxMerges) return too_many("model.merges", kMaxMerges);
    if (!in_entry_) {
      if (!out_.merge_left_bytes.empty())
        return fail(fmt::format("{} is no list, as the ones before it", where()));
      out_.merges.push_back(std::move(text));
      return true;
    }
    if (field_ == 0) {
      if (out_.merge_left_bytes.size() != out_.merges.size()) {
        return fail(fmt::format("{} is a list, unlike the ones before it", where()));
      }
      left_ = std::move(text);
    } else if (field_ == 1) {
      out_.merge_left_bytes.push_back(static_cast<uint32_t>(left_.size()));
      out_.merges.push_back(left_ + ' ' + text);
    }
    ++field_;
    return true;
  }

  template <class Value>
  bool value(Value&& v, std::string_view kind) {
    if (part_ != Part::rest) return unexpected(kind);
    if (tree_.empty()) return fail(fmt::format("the text is {}; allowed is an object", kind));
    put(Json(std::forward<Value>(v)));
    return true;
  }
  Json* put(Json v) {
    Json& parent = *tree_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(v));
      return &parent.back();
    }
    Json& place = parent[keys_.back()];
    place = std::move(v);
    return &place;
  }
  bool open(Json container) {
    if (tree_.size() >= kMaxDepth) return fail(fmt::format("{}: deeper than {} levels", where(), kMaxDepth));
    if (tree_.empty()) {
      if (!container.is_object()) return fail("the text is a list; allowed is an object");
      tree_.push_back(out_.rest.get());
    } else {
      tree_.push_back(put(std::move(container)));
    }
    keys_.emplace_back();
    return true;
  }
  bool close() {
    tree_.pop_back();
    keys_.pop_back();
    return true;
  }

  TokenizerJson& out_;
  std::string error_;
  Part part_ = Part::rest;
  std::vector<Json*> tree_;  // the open containers; a pointer stays while its parent does not grow, as here
  std::vector<std::string> keys_;  // in each of them, the key of the value that comes
  bool seen_vocabulary_ = false, seen_merges_ = false;
  bool in_entry_ = false;  // in a list inside of model.vocab or model.merges
  int field_ = 0;          // which element of it comes
  std::string left_;
};

}  // namespace

Result<TokenizerJson> read_tokenizer_json(std::string_view json, std::string_view origin) {
  TokenizerJson out;
  Handler handler(out);
  if (!parse_json_events(json, handler)) {
    return bad_input(fmt::format("{}: {}", origin, handler.error()));
  }
  return out;
}

}  // namespace quintet
