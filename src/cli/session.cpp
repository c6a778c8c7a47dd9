// Loads a model and starts an engine.
#include "cli/session.h"

#include <algorithm>

#include "base/log.h"
#include "base/units.h"
#include "cli/terminal.h"

namespace quintet {

namespace {

/// How an attempt to use a device ended.
struct Attempt {
  Status status;
  bool admitted = false;  ///< the device is there and all of the model fits: errors since are the model's own
  std::string plan;       ///< the memory, where admitted
};

Attempt open_on(const BackendCandidate& candidate, const ModelSource& source, const CommonOptions& common,
                LoadOptions options, const EngineOptions& engine, Session& session) {
  Attempt attempt;
  auto made = candidate.make(common.backend, candidate.index);
  if (!made) {
    attempt.status = made.error();
    return attempt;
  }
  session.backend = std::move(made).value();
  options.admit = [&](const ModelNeeds& needs) -> Status {
    // A context beyond the model's is the caller's error to tell, not a matter of room.
    EngineOptions wanted = engine;
    wanted.context = std::min(wanted.context, needs.config.context);
    TRY_ASSIGN(const MemoryPlan plan, plan_engine(*session.backend, needs, /*weights_are_loaded=*/false, wanted));
    attempt.plan = plan.sum();
    attempt.admitted = true;
    return {};
  };
  ProgressBar bar("load");
  options.progress = [&bar](uint64_t done_bytes, uint64_t total_bytes) { bar.update(done_bytes, total_bytes); };
  auto model = source.load(*session.backend, options);
  if (model)
    session.model = std::move(model).value();
  else
    attempt.status = model.error();
  return attempt;
}

}  // namespace

Result<Session> open_session(const ModelSource& source, const CommonOptions& common, LoadOptions options,
                             const EngineOptions& engine) {
  TRY(source.check());
  TRY_ASSIGN(const auto candidates, backend_candidates(common.backend));
  for (const BackendCandidate& candidate : candidates) {
    const bool is_last = &candidate == &candidates.back();
    Session session;
    const int64_t start_us = now_us();
    const Attempt attempt = open_on(candidate, source, common, options, engine, session);
    if (!attempt.status && (is_last || attempt.admitted)) return attempt.status.error();
    if (!attempt.status) {
      // A machine without a GPU is no news.
      if (session.backend || attempt.status.error().kind != ErrorKind::not_found)
        say(fmt::format("--device auto: not {}: {}", candidate.device, attempt.status.error().message));
      continue;
    }
    session.load_s = static_cast<double>(now_us() - start_us) * 1e-6;
    const BackendInfo info = session.backend->info();
    if (!is_last) say(fmt::format("--device auto: {} ({}): {}", info.name, info.description, attempt.plan));
    LOG_INFO("{}: loaded in {:.3f} s, computes on {} ({})", source.name(), session.load_s, info.name, info.description);
    return session;
  }
  return internal_error("no device");
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
