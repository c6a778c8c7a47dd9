// The two queues and the thread between them.
#include "engine/local_engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "engine/request_check.h"

namespace quintet {
namespace {

constexpr int64_t kLongestPoll_us = int64_t{24} * 3600 * 1'000'000;

}  // namespace

Result<std::unique_ptr<LocalEngine>> LocalEngine::start(std::unique_ptr<Executor> executor, Options options) {
  TRY_ASSIGN(auto loop, Loop::make(*executor, options.loop));
  return std::unique_ptr<LocalEngine>(
      new LocalEngine(std::move(executor), std::move(options), std::move(loop)));
}

LocalEngine::LocalEngine(std::unique_ptr<Executor> executor, Options options, std::unique_ptr<Loop> loop)
    : executor_(std::move(executor)), options_(std::move(options)), loop_(std::move(loop)) {
  stats_ = loop_->stats();
  thread_ = std::thread([this] { run(); });
}

LocalEngine::~LocalEngine() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_one();
  thread_.join();
}

Status LocalEngine::submit(Request request) {
  TRY(check_request(request, limits(), options_.vocabulary));
  {
    std::lock_guard lock(mutex_);
    if (!lost_.empty()) return internal_error(fmt::format("the engine has stopped: {}", lost_));
    const size_t allowed = static_cast<size_t>(limits().waiting) + static_cast<size_t>(limits().sequences);
    if (open_.size() >= allowed)
      return no_room(
          fmt::format("the queue is full: {} requests run or wait, allowed are {}", open_.size(), allowed));
    if (!open_.try_emplace(request.id).second)
      return bad_input(fmt::format("id: found {}, which another request has", request.id));
    inbound_.emplace_back(std::move(request));
    ++stats_.waiting;
  }
  arrived_.notify_one();
  return {};
}

void LocalEngine::cancel(RequestId id) {
  {
    std::lock_guard lock(mutex_);
    const auto found = open_.find(id);
    if (found == open_.end() || std::exchange(found->second.cancelled, true)) return;
    inbound_.emplace_back(Cancel{.id = id});
  }
  arrived_.notify_one();
}

std::vector<TokenEvent> LocalEngine::poll(int64_t timeout_us) {
  std::unique_lock lock(mutex_);
  // Bounded, since the deadline is computed in nanoseconds.
  const std::chrono::microseconds timeout(std::clamp<int64_t>(timeout_us, 0, kLongestPoll_us));
  emitted_.wait_for(lock, timeout, [this] { return !outbound_.empty(); });
  std::vector<TokenEvent> events(std::make_move_iterator(outbound_.begin()),
                                 std::make_move_iterator(outbound_.end()));
  outbound_.clear();
  for (const TokenEvent& event : events) {
    const auto found = open_.find(event.id);
    if (event.finish != FinishReason::none)
      open_.erase(found);
    else
      --found->second.unread_events;
  }
  return events;
}

EngineStats LocalEngine::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

bool LocalEngine::take_messages(std::vector<Message>& messages) {
  messages.clear();
  std::unique_lock lock(mutex_);
  if (loop_->idle()) arrived_.wait(lock, [this] { return stopping_ || !inbound_.empty(); });
  std::swap(messages, inbound_);
  return !stopping_;
}

void LocalEngine::run() {
  std::vector<Message> messages;
  std::vector<TokenEvent> events;
  while (take_messages(messages)) {
    events.clear();
    for (Message& message : messages) {
      if (auto* request = std::get_if<Request>(&message))
        loop_->submit(std::move(*request), events);
      else
        loop_->cancel(std::get<Cancel>(message).id, std::get<Cancel>(message).why, events);
    }
    const Status status = loop_->step(events);
    if (!status) {
      LOG_ERROR("the engine has stopped: {}", status.error().message);
      std::lock_guard lock(mutex_);
      lost_ = status.error().message;
      // What came in while the step failed ends like the rest.
      for (const Message& message : inbound_)
        if (const auto* request = std::get_if<Request>(&message))
          events.push_back({.id = request->id,
                            .index = static_cast<int32_t>(request->generated.size()),
                            .finish = FinishReason::error,
                            .message = lost_});
      inbound_.clear();
    }
    deliver(events);
    if (!status) return;
  }
  const BlockPoolFigures figures = loop_->cache().pool().figures();
  LOG_DEBUG(
      "cache: {} of {} blocks were used, {} are free in {} runs, the longest of {}; {} prefix blocks were "
      "evicted; "
      "{} preemptions",
      figures.touched_blocks, figures.total_blocks, figures.free_blocks, figures.free_runs,
      figures.longest_free_run_blocks, loop_->cache().index().evictions(), loop_->preemptions());
}

void LocalEngine::deliver(std::vector<TokenEvent>& events) {
  const EngineStats stats = loop_->stats();
  {
    std::lock_guard lock(mutex_);
    stats_ = stats;
    for (const Message& message : inbound_) stats_.waiting += std::holds_alternative<Request>(message);
    for (TokenEvent& event : events) {
      Open& open = open_.at(event.id);
      if (event.finish == FinishReason::none && ++open.unread_events >= options_.unread_events &&
          !open.cancelled) {
        open.cancelled = true;
        inbound_.emplace_back(Cancel{
            .id = event.id, .why = fmt::format("{} of its events were not read", options_.unread_events)});
      }
      outbound_.push_back(std::move(event));
    }
  }
  if (!events.empty()) emitted_.notify_one();
}

}  // namespace quintet
