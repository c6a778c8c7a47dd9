// Every range, at its edges and beyond.
#include "sampling/params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace quintet {
namespace {

using ::testing::HasSubstr;

SampleParams with(const std::function<void(SampleParams&)>& change) {
  SampleParams params;
  change(params);
  return params;
}

TEST(SamplingParams, AcceptsDefaultsAndEdges) {
  EXPECT_TRUE(check_sampling({}));
  EXPECT_TRUE(
      check_sampling(with([](auto& p) { p.temperature = 100, p.top_p = 1, p.min_p = 1, p.logprobs = 20; })));
  EXPECT_TRUE(check_sampling(with([](auto& p) { p.top_p = 0; }))) << "the likeliest token alone";
  EXPECT_TRUE(check_sampling(with([](auto& p) { p.repeat_penalty = 0.01f, p.presence_penalty = -2; })));
}

TEST(SamplingParams, NamesFieldFoundAndAllowed) {
  const struct {
    const char* name;
    SampleParams params;
  } kCases[] = {
      {"temperature", with([](auto& p) { p.temperature = -0.1f; })},
      {"temperature", with([](auto& p) { p.temperature = NAN; })},
      {"temperature", with([](auto& p) { p.temperature = INFINITY; })},
      {"top_k", with([](auto& p) { p.top_k = -1; })},
      {"top_p", with([](auto& p) { p.top_p = -0.1f; })},
      {"top_p", with([](auto& p) { p.top_p = 1.5f; })},
      {"top_p", with([](auto& p) { p.top_p = NAN; })},
      {"min_p", with([](auto& p) { p.min_p = 1.1f; })},
      {"repeat_penalty", with([](auto& p) { p.repeat_penalty = 0; })},
      {"presence_penalty", with([](auto& p) { p.presence_penalty = 2.1f; })},
      {"frequency_penalty", with([](auto& p) { p.frequency_penalty = -INFINITY; })},
      {"logprobs", with([](auto& p) { p.logprobs = 21; })},
  };
  for (const auto& test : kCases) {
    const Status status = check_sampling(test.params);
    ASSERT_FALSE(status) << test.name;
    EXPECT_EQ(status.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(status.error().message, HasSubstr(std::string(test.name) + ": found"));
    EXPECT_THAT(status.error().message, HasSubstr("allowed are"));
  }
  EXPECT_EQ(check_sampling(with([](auto& p) { p.temperature = -1; })).error().message,
            "temperature: found -1, allowed are 0 to 100");
}

TEST(StopStrings, AreFewAndShort) {
  EXPECT_TRUE(check_stop_strings({}));
  EXPECT_TRUE(check_stop_strings({std::string(kMaxStopBytes, 'x')}));
  EXPECT_THAT(check_stop_strings({""}).error().message, testing::StartsWith("found a string of 0 bytes"));
  EXPECT_FALSE(check_stop_strings({std::string(kMaxStopBytes + 1, 'x')}));
  EXPECT_FALSE(check_stop_strings(std::vector<std::string>(kMaxStopStrings + 1, "x")));
}

}  // namespace
}  // namespace quintet
