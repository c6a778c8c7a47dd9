// A step allocates nothing: counted, not claimed.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/units.h"
#include "fake_executor.h"

namespace {

thread_local bool counting = false;
thread_local int allocations = 0;

}  // namespace

void* operator new(size_t bytes) {
  allocations += counting;
  if (void* data = std::malloc(bytes > 0 ? bytes : 1)) return data;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  allocations += counting;
  return std::malloc(bytes > 0 ? bytes : 1);
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }

namespace quintet {
namespace {

/// Sampling that is a hash as well, but nothing that could allocate.
class QuietExecutor : public Executor {
 public:
  Result<Buffer> allocate_staging(size_t bytes) override {
    return Buffer(std::calloc(1, bytes), bytes, [](void* data) { std::free(data); });
  }
  Status launch(const StepInputs& inputs) override {
    seed_ = fake_mix(seed_, static_cast<uint64_t>(inputs.view.rows));
    return {};
  }
  Status wait(std::span<Sampled> sampled, std::span<Alternative>) override {
    for (Sampled& one : sampled) one = {.token = static_cast<TokenId>((seed_ = fake_mix(seed_, 1)) % 50)};
    return {};
  }

 private:
  uint64_t seed_ = 1;
};

TEST(Allocation, StepsAllocateNothing) {
  QuietExecutor executor;
  // Room for five of eight sequences: chunks, decodes, prefix hits, evictions and preemptions all happen.
  auto loop =
      Loop::make(executor, {.limits = {.context = 200, .sequences = 8, .waiting = 8, .kv_tokens = 1000},
                            .step_tokens = 32,
                            .kv = {.page = {.tokens = 4, .bytes = 256}, .pages = 250},
                            .clock_us = now_us})
          .value();
  std::vector<TokenEvent> events;
  events.reserve(10000);
  for (RequestId id = 0; id < 8; ++id) {
    Request request{
        .id = id, .prompt = std::vector<TokenId>(60, static_cast<TokenId>(id / 2)), .max_new_tokens = 130};
    request.sampling.repeat_penalty = 1.1f;
    request.bias = {{.token = 1, .value = 2}};
    loop->submit(std::move(request), events);
  }
  counting = true;
  for (int step = 0; step < 120; ++step) (void)loop->step(events);
  counting = false;
  EXPECT_EQ(allocations, 0);
  EXPECT_GT(loop->preemptions(), 0u);
  EXPECT_GT(events.size(), 400u);
  EXPECT_EQ(loop->stats().running + loop->stats().waiting,
            8);  // requests that end free memory, they do not allocate
}

}  // namespace
}  // namespace quintet
