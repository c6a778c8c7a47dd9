// Loads a model and starts an engine.
#include "cli/session.h"

#include "base/log.h"
#include "base/units.h"
#include "cli/terminal.h"

namespace quintet {

Result<Session> open_session(const std::string& model_path, const CommonOptions& common,
                             LoadOptions options) {
  Session session;
  TRY_ASSIGN(session.backend, make_backend(common.backend));
  const int64_t start_us = now_us();
  {
    ProgressBar bar("load");
    options.progress = [&bar](uint64_t done_bytes, uint64_t total_bytes) {
      bar.update(done_bytes, total_bytes);
    };
    TRY_ASSIGN(session.model, load_model(model_path, *session.backend, options));
  }
  session.load_s = static_cast<double>(now_us() - start_us) * 1e-6;
  const BackendInfo info = session.backend->info();
  LOG_INFO("{}: loaded in {:.3f} s, computes on {} ({})", model_path, session.load_s, info.name,
           info.description);
  return session;
}

Status check_context(int64_t context_tokens, const Model& model) {
  if (context_tokens <= model.config.context) return {};
  return bad_input(fmt::format("--context: found {}, allowed are at most {} (what {} was made for)",
                               context_tokens, model.config.context, model.path));
}

Status Session::start(const EngineOptions& options) {
  TRY_ASSIGN(engine, start_engine(*backend, *model, options));
  return {};
}

}  // namespace quintet
