// A whole server over the fake engine, on a free port.
#pragma once

#include <memory>
#include <string>

#include "server/fake_engine.h"
#include "server/server.h"
#include "server/test_client.h"

namespace quintet {

inline constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

class ServerTest : public ::testing::Test {
 protected:
  void start(const std::string& chat_template = kChatMl) {
    model.tokenizer = std::make_shared<ByteTokenizer>();
    model.config.vocabulary = model.tokenizer->vocabulary();
    model.stop_ids = model.tokenizer->end_tokens();
    model.path = "/models/tiny.gguf";
    if (!chat_template.empty()) {
      auto parsed = ChatTemplate::parse(chat_template);
      ASSERT_TRUE(parsed) << parsed.error().message;
      model.chat_template = std::make_shared<ChatTemplate>(std::move(*parsed));
    }
    options.port = 0;
    auto started = start_server(engine, model, options);
    ASSERT_TRUE(started) << started.error().message;
    server = std::move(*started);
  }

  TestClient client(int receive_buffer_bytes = 0) const {
    return TestClient(server->port(), receive_buffer_bytes);
  }
  ClientResponse post(std::string_view path, std::string_view body) const {
    return client().call(TestClient::post(path, body));
  }
  ClientResponse get(std::string_view path) const { return client().call(TestClient::get(path)); }

  static std::string completion(std::string_view prompt, std::string_view more = "") {
    return "{\"prompt\": " + nlohmann::json(prompt).dump() + ", \"max_tokens\": 100" + std::string(more) +
           "}";
  }

  FakeEngine engine;
  Model model;
  ServerOptions options;
  std::unique_ptr<Server> server;  ///< destroyed first
};

}  // namespace quintet
