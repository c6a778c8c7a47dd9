// `quintet tokenize`: text to ids, ids to text, one at a time or line by line.
#include <charconv>

#include "base/json_parse.h"
#include "cli/flags.h"
#include "cli/terminal.h"

namespace quintet {
namespace {

using Json = nlohmann::json;

/// A token's bytes, readable: characters as they are, control bytes and broken UTF-8 escaped, in quotes.
std::string readable(std::string_view bytes) {
  std::string text = "\"";
  while (!bytes.empty()) {
    const size_t good = std::min(find_broken_utf8(bytes), bytes.size());
    for (char c : bytes.substr(0, good)) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\')
        text += '\\', text += c;
      else if (c == '\n')
        text += "\\n";
      else if (c == '\t')
        text += "\\t";
      else if (byte < 0x20 || byte == 0x7F)
        text += fmt::format("\\x{:02x}", byte);
      else
        text += c;
    }
    bytes.remove_prefix(good);
    if (bytes.empty()) break;
    text += fmt::format("\\x{:02x}", static_cast<unsigned char>(bytes.front()));
    bytes.remove_prefix(1);
  }
  return text + '"';
}

void append_ids(std::string& line, const std::vector<TokenId>& ids, std::string_view separator) {
  char digits[16];
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i) line += separator;
    line.append(digits, std::to_chars(digits, digits + sizeof(digits), ids[i]).ptr);
  }
}

class TokenizeVerb : public Verb {
 public:
  std::string_view examples() const override {
    return "  quintet tokenize model.gguf -p \"Hello, world\" --pieces\n"
           "  quintet tokenize model.gguf --decode -p \"504 3575 282\"\n"
           "  quintet tokenize vocabulary.gguf --jsonl < strings.jsonl > ids.jsonl\n"
           "  quintet tokenize model.gguf --jsonl --decode < ids.jsonl\n";
  }

  void declare(FlagSet& flags) override {
    flags.model(model_path_);
    source_.declare(flags, "The text (with --decode: ids, divided by spaces or commas)");
    Flag jsonl = flags
                     .toggle("--jsonl", jsonl_,
                             "Standard input: one JSON string a line; output: one JSON list of ids a line")
                     .excludes(source_.text_flag)
                     .excludes(source_.file_flag);
    Flag decode = flags.toggle("--decode", decode_, "From ids to text (with --jsonl: lists in, strings out)");
    flags.toggle("--pieces", pieces_, "One line a token: id, tab, the bytes it stands for")
        .excludes(jsonl)
        .excludes(decode);
    flags.toggle("--bos", bos_, "Add BOS and EOS where the tokenizer's rules say so").excludes(decode);
    flags.toggle("--special", special_,
                 "Special tokens that the text writes out count as such (--decode: are written out)");
    flags.text("--tokenizer", tokenizer_, "PATH",
               "Take the tokenizer from this GGUF, tokenizer.json or folder");
    flags.files().reads("--tokenizer", tokenizer_);
  }

  VerbOutcome run(const CommonOptions&) override {
    std::string text;
    if (!jsonl_) {
      TRY_ASSIGN(text, source_.read("text"));
    }
    LoadOptions options;
    options.tokenizer_path = tokenizer_;
    TRY_ASSIGN(const auto model, load_text(model_path_, options));
    source_.note_unread_input();
    const Tokenizer& tokenizer = *model->tokenizer;
    if (jsonl_) return run_lines(tokenizer);
    Output output;
    if (decode_) {
      TRY_ASSIGN(const auto ids, parse_ids(text, tokenizer.vocabulary()));
      return output.print(tokenizer.decode(ids, special_) + "\n");
    }
    const auto ids = tokenizer.encode(text, encode_options());
    if (pieces_) {
      for (TokenId id : ids)
        TRY(output.collect(fmt::format("{}\t{}\n", id, readable(tokenizer.piece(id, true)))));
      return output.flush();
    }
    std::string line;
    append_ids(line, ids, " ");
    return output.print(line + "\n");
  }

 private:
  EncodeOptions encode_options() const { return {.add_bos = bos_, .parse_special = special_}; }

  static Result<std::vector<TokenId>> parse_ids(std::string_view text, int32_t vocabulary) {
    constexpr std::string_view kBetween = " \t\r\n,[]";
    std::vector<TokenId> ids;
    for (size_t at = text.find_first_not_of(kBetween); at < text.size();
         at = text.find_first_not_of(kBetween, at)) {
      const std::string_view word =
          text.substr(at, std::min(text.find_first_of(kBetween, at), text.size()) - at);
      TokenId id = -1;
      const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (failed != std::errc() || end != word.data() + word.size() || id < 0 || id >= vocabulary)
        return bad_input(fmt::format("ids: found '{}' after {} ids, allowed are whole numbers from 0 to {}",
                                     word.substr(0, 40), ids.size(), vocabulary - 1));
      ids.push_back(id);
      at += word.size();
    }
    return ids;
  }

  /// Every input line gives one output line; one that cannot be taken gives {"error": ...}, and the end is
  /// bad_input.
  Status run_lines(const Tokenizer& tokenizer) const {
    LineReader reader;
    Output output;
    std::string line, out, first_error;
    size_t lines = 0, broken = 0;
    while (reader.read(line) == LineReader::Outcome::line) {
      ++lines;
      out.clear();
      if (auto status = take_line(tokenizer, line, out); !status) {
        const std::string message = fmt::format("line {}: {}", lines, status.error().message);
        if (broken++ == 0) first_error = message;
        out = Json{{"error", message}}.dump(-1, ' ', false, Json::error_handler_t::replace);
      }
      out += '\n';
      TRY(output.collect(out));
      // Somebody who sends a line and waits for its answer gets it.
      if (!reader.ready()) TRY(output.flush());
    }
    TRY(output.flush());
    if (broken == 0) return {};
    return bad_input(fmt::format("standard input: {} of {} lines could not be taken, the first: {}", broken,
                                 lines, first_error));
  }

  Status take_line(const Tokenizer& tokenizer, const std::string& line, std::string& out) const {
    const Json value = parse_json_tree(line);
    if (value.is_discarded())
      return bad_input(fmt::format("found text that is not JSON in UTF-8, allowed is a JSON {}",
                                   decode_ ? "list of ids" : "string"));
    if (!decode_) {
      if (!value.is_string())
        return bad_input(fmt::format("found {}, allowed is a JSON string", value.type_name()));
      out += '[';
      append_ids(out, tokenizer.encode(value.get_ref<const std::string&>(), encode_options()), ", ");
      out += ']';
      return {};
    }
    if (!value.is_array())
      return bad_input(fmt::format("found {}, allowed is a JSON list of ids", value.type_name()));
    std::vector<TokenId> ids;
    ids.reserve(value.size());
    for (const Json& element : value) {
      const bool whole = element.is_number_unsigned() &&
                         element.get<uint64_t>() < static_cast<uint64_t>(tokenizer.vocabulary());
      if (!whole)
        return bad_input(fmt::format("found {} at index {}, allowed are whole numbers from 0 to {}",
                                     element.is_number() ? element.dump() : element.type_name(), ids.size(),
                                     tokenizer.vocabulary() - 1));
      ids.push_back(element.get<TokenId>());
    }
    out += Json(tokenizer.decode(ids, special_)).dump(-1, ' ', false, Json::error_handler_t::replace);
    return {};
  }

  std::string model_path_, tokenizer_;
  TextSource source_;
  bool jsonl_ = false, decode_ = false, pieces_ = false, bos_ = false, special_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_tokenize_verb() { return std::make_unique<TokenizeVerb>(); }

}  // namespace quintet
