// The dispatcher: one loop over the engine's events.
#include "server/frontend.h"

#include <chrono>
#include <vector>

#include "base/log.h"
#include "server/errors.h"
#include "server/sse.h"

namespace quintet {
namespace {

constexpr int64_t kPollUs = 20'000;       // how late a stop may be seen
constexpr int64_t kCancelWaitMs = 2'000;  // the engine hears of a cancel within a step
constexpr int64_t kKeepAliveMs = 15'000;  // proxies commonly close what is silent for 60 s
constexpr int64_t kKeepAliveEveryMs = 1'000;

int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

struct Frontend::Job {
  Job(const Tokenizer& tokenizer, AnswerOptions options, std::shared_ptr<HttpExchange> exchange)
      : answer(tokenizer, std::move(options)), exchange(std::move(exchange)) {}
  std::mutex mutex;  ///< held by the dispatcher, and by submit() until the stream has begun
  Answer answer;
  std::shared_ptr<HttpExchange> exchange;
  bool cancelled = false;  ///< by us: a stop string, a client that left
  int64_t written_ms = 0;
};

Frontend::Frontend(EngineClient& engine, const Tokenizer& tokenizer)
    : engine_(engine), tokenizer_(tokenizer) {
  thread_ = std::thread([this] { run(); });
}

Frontend::~Frontend() { shut_down(); }

void Frontend::submit(Request request, AnswerOptions options, std::shared_ptr<HttpExchange> exchange) {
  const RequestId id = next_id_++;
  request.id = id;
  const bool stream = options.stream;
  auto job = std::make_shared<Job>(tokenizer_, std::move(options), exchange);
  {
    // The first events may come before submit() returns: they wait for the head of the stream.
    std::lock_guard job_lock(job->mutex);
    {
      std::lock_guard lock(mutex_);
      if (stopping_)
        return exchange->respond(error_response(status_error(503, "The server is stopping.", "stopping")));
      jobs_.emplace(id, job);
    }
    if (const Status submitted = engine_.submit(std::move(request)); !submitted) {
      remove(id);
      LOG_DEBUG("request {} refused: {}", id, submitted.error().message);
      return exchange->respond(error_response(api_error(submitted.error())));
    }
    job->written_ms = now_ms();
    if (stream)
      exchange->begin_stream({.status = 200,
                              .content_type = "text/event-stream; charset=utf-8",
                              .headers = {{"Cache-Control", "no-cache"}},
                              .body = ""});
  }
  exchange->on_leave([this, id] {
    LOG_DEBUG("request {}: the client has left", id);
    engine_.cancel(id);
  });
}

void Frontend::run() {
  while (!stopping_) {
    for (const TokenEvent& event : engine_.poll(kPollUs)) deliver(event);
    keep_alive();
  }
}

std::shared_ptr<Frontend::Job> Frontend::find(RequestId id) const {
  std::lock_guard lock(mutex_);
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : found->second;
}

void Frontend::remove(RequestId id) {
  std::lock_guard lock(mutex_);
  jobs_.erase(id);
  if (jobs_.empty()) idle_.notify_all();
}

void Frontend::deliver(const TokenEvent& event) {
  const auto job = find(event.id);
  if (!job) return;
  bool done = false;
  {
    std::lock_guard lock(job->mutex);
    const std::string bytes = job->answer.push(event);
    bool cancel = job->answer.stopped() && !job->answer.done();
    if (!bytes.empty()) {
      job->written_ms = now_ms();
      cancel |= !job->exchange->write(bytes);
    }
    if (cancel && !job->cancelled) {
      job->cancelled = true;
      engine_.cancel(event.id);
    }
    done = job->answer.done();
    if (done) finish(*job);
  }
  if (done) remove(event.id);
}

void Frontend::finish(Job& job) {
  const Answer& answer = job.answer;
  if (answer.stream()) return job.exchange->end();
  switch (answer.failure()) {
    case FinishReason::error:
      LOG_ERROR("a request failed: {}", answer.message());
      return job.exchange->respond(error_response(status_error(500, answer.message(), "internal_error")));
    case FinishReason::cancelled:
      return job.exchange->respond(error_response(
          status_error(503, "The answer was cancelled: the server is stopping.", "cancelled")));
    default:
      return job.exchange->respond(
          {.status = 200, .content_type = "application/json", .headers = {}, .body = answer.body()});
  }
}

void Frontend::keep_alive() {
  const int64_t now = now_ms();
  if (now - kept_alive_ms_ < kKeepAliveEveryMs) return;
  kept_alive_ms_ = now;
  std::vector<std::shared_ptr<Job>> jobs;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, job] : jobs_) jobs.push_back(job);
  }
  for (const auto& job : jobs) {
    std::lock_guard lock(job->mutex);
    if (!job->answer.stream() || now - job->written_ms < kKeepAliveMs) continue;
    job->written_ms = now;
    // A client that is gone has been cancelled by its on_leave().
    static_cast<void>(job->exchange->write(kSseKeepAlive));
  }
}

size_t Frontend::active() const {
  std::lock_guard lock(mutex_);
  return jobs_.size();
}

bool Frontend::wait_idle(int64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return jobs_.empty(); });
}

void Frontend::cancel_all() {
  std::vector<RequestId> ids;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, job] : jobs_) ids.push_back(id);
  }
  for (const RequestId id : ids) engine_.cancel(id);
}

void Frontend::shut_down() {
  if (!thread_.joinable()) return;
  cancel_all();
  wait_idle(kCancelWaitMs);
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  thread_.join();
  std::unordered_map<RequestId, std::shared_ptr<Job>> left;
  {
    std::lock_guard lock(mutex_);
    left.swap(jobs_);
  }
  for (const auto& [id, job] : left) {
    TokenEvent end;
    end.id = id;
    end.finish = FinishReason::cancelled;
    std::lock_guard lock(job->mutex);
    const std::string bytes = job->answer.push(end);
    if (!bytes.empty()) static_cast<void>(job->exchange->write(bytes));
    finish(*job);
  }
}

}  // namespace quintet
