// Measures memory reads and multiply-adds with all threads at once.
#include "backend/cpu/ceilings.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "backend/cpu/pool.h"
#include "base/units.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace quintet {
namespace {


/// Best of a few runs of body(thread) -> amount of work, as work a second over all threads.
template <class Body>
double best_rate(int threads, int runs, Body&& body) {
  std::vector<double> work(static_cast<size_t>(threads) * 8);  // 64 bytes apart
  double best = 0;
  for (int run = 0; run < runs; ++run) {
    const int64_t start = now_us();
    {
      std::vector<std::jthread> others;
      for (int thread = 1; thread < threads; ++thread)
        others.emplace_back([&, thread] { work[static_cast<size_t>(thread) * 8] = body(thread); });
      work[0] = body(0);
    }
    const auto us = static_cast<double>(std::max<int64_t>(1, now_us() - start));
    double total = 0;
    for (int t = 0; t < threads; ++t) total += work[static_cast<size_t>(t) * 8];
    best = std::max(best, total / us * 1e6);
  }
  return best;
}

#if defined(__x86_64__)

// Each kernel runs 12 independent chains, which hide the latency, and returns the multiply-adds it did.
constexpr int64_t kRounds = 1 << 20;
#define CHAINS(target_flags, name, type, zero, step, macs)           \
  __attribute__((target(target_flags), noinline)) double name(int) { \
    type a[12], w = zero;                                            \
    for (auto& v : a) v = zero;                                      \
    for (int64_t i = 0; i < kRounds; ++i) {                          \
      _Pragma("GCC unroll 12") for (int t = 0; t < 12; ++t) {        \
        a[t] = step;                                                 \
        asm volatile("" : "+v"(a[t]), "+v"(w));                      \
      }                                                              \
    }                                                                \
    return static_cast<double>(kRounds) * 12 * (macs);               \
  }
#define AVX512 "avx512f,avx512bw,avx512vl"
CHAINS(AVX512 ",avx512vnni", dpwssd, __m512i, _mm512_setzero_si512(), _mm512_dpwssd_epi32(a[t], w, w), 32)
CHAINS(AVX512 ",avx512vnni", dpbusd, __m512i, _mm512_setzero_si512(), _mm512_dpbusd_epi32(a[t], w, w), 64)
CHAINS(AVX512 ",avx512bf16", dpbf16, __m512, _mm512_setzero_ps(),
       _mm512_dpbf16_ps(a[t], (__m512bh)w, (__m512bh)w), 32)
CHAINS(AVX512, fma512, __m512, _mm512_setzero_ps(), _mm512_fmadd_ps(w, w, a[t]), 16)
CHAINS("avx2", maddwd256, __m256i, _mm256_setzero_si256(), _mm256_add_epi32(a[t], _mm256_madd_epi16(w, w)),
       16)
CHAINS("avx2,fma", fma256, __m256, _mm256_setzero_ps(), _mm256_fmadd_ps(w, w, a[t]), 8)
#undef CHAINS
#undef AVX512

struct Kind {
  const char* name;
  bool here;
  double (*run)(int);
};

std::vector<Kind> kinds() {
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl");
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  const bool avx2 = __builtin_cpu_supports("avx2");
  return {{"avx512-vnni dpwssd (16 bit)", vnni, dpwssd},
          {"avx512-vnni dpbusd (8 bit)", vnni, dpbusd},
          {"avx512-bf16 dpbf16", avx512 && __builtin_cpu_supports("avx512bf16"), dpbf16},
          {"avx512 fma f32", avx512, fma512},
          {"avx2 maddwd (16 bit)", avx2, maddwd256},
          {"avx2 fma f32", avx2 && __builtin_cpu_supports("fma"), fma256}};
}

#endif

/// Sums the words of a buffer, eight at a time, so that loads and not additions are the limit.
uint64_t read_words(const uint64_t* words, int64_t count) {
  uint64_t sum[8] = {};
  for (int64_t i = 0; i + 8 <= count; i += 8)
    for (int j = 0; j < 8; ++j) sum[j] ^= words[i + j];
  uint64_t all = 0;
  for (uint64_t s : sum) all ^= s;
  return all;
}

}  // namespace

CpuCeilings measure_cpu_ceilings(int threads) {
  if (threads <= 0) threads = cpu::usable_cores();
  CpuCeilings ceilings;
  // Larger than the last-level caches of today's servers' share of a process.
  constexpr int64_t kWords = int64_t{256} << 17;  // 256 MiB
  const auto words = std::make_unique_for_overwrite<uint64_t[]>(static_cast<size_t>(kWords));
  std::memset(words.get(), 1, static_cast<size_t>(kWords) * sizeof(uint64_t));
  volatile uint64_t sink = 0;
  ceilings.read_bytes_per_s = best_rate(threads, 5, [&](int thread) {
    const int64_t begin = kWords * thread / threads, count = kWords * (thread + 1) / threads - begin;
    const uint64_t sum = read_words(words.get() + begin, count);
    if (sum == 1) sink = sum;  // keeps the loop
    return static_cast<double>(count * static_cast<int64_t>(sizeof(uint64_t)));
  });
#if defined(__x86_64__)
  for (const Kind& kind : kinds())
    if (kind.here) ceilings.dot_ops_per_s.emplace_back(kind.name, best_rate(threads, 5, kind.run));
#endif
  return ceilings;
}

}  // namespace quintet
