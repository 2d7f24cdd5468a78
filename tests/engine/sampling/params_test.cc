#include "engine/sampling/params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tools/make_model/gguf_writer.h"

namespace bulkhead::engine {
namespace {

SamplingParams With(void (*change)(SamplingParams&)) {
  SamplingParams params;
  change(params);
  return params;
}

TEST(SamplingParams, DefaultsAreValid) { EXPECT_TRUE(Validate(SamplingParams()).ok()); }

TEST(SamplingParams, OutOfRangeIsRefusedByName) {
  const std::pair<SamplingParams, const char*> bad[] = {
      {With([](SamplingParams& p) { p.temperature = -1; }), "sampling.temperature"},
      {With([](SamplingParams& p) { p.temperature = std::numeric_limits<float>::quiet_NaN(); }),
       "sampling.temperature"},
      {With([](SamplingParams& p) { p.top_k = -1; }), "sampling.top_k"},
      {With([](SamplingParams& p) { p.top_p = 0; }), "sampling.top_p"},
      {With([](SamplingParams& p) { p.top_p = 1.5f; }), "sampling.top_p"},
      {With([](SamplingParams& p) { p.min_p = std::numeric_limits<float>::quiet_NaN(); }), "sampling.min_p"},
      {With([](SamplingParams& p) { p.repeat_penalty = 0; }), "sampling.repeat_penalty"},
      {With([](SamplingParams& p) { p.repeat_last_n = 10'000; }), "sampling.repeat_last_n"},
      {With([](SamplingParams& p) { p.stop.assign(17, "x"); }), "sampling.stop"},
      {With([](SamplingParams& p) { p.stop.assign(1, std::string(257, 'x')); }), "sampling.stop"},
  };
  for (const auto& [params, named] : bad) {
    const absl::Status status = Validate(params);
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidRequest);
    EXPECT_TRUE(Message(status).starts_with(named)) << Message(status);
  }
}

TEST(SamplingParams, TakesTheFilesDefaultsWhereTheyAreUseful) {
  tools::GgufWriter writer;
  writer.AddFloat("general.sampling.temp", 0.6f);
  writer.AddI32("general.sampling.top_k", 20);
  writer.AddFloat("general.sampling.top_p", 7);
  writer.AddString("general.sampling.min_p", "0.1");
  writer.AddFloat("general.sampling.penalty_repeat", 1.1f);
  writer.AddI32("general.sampling.penalty_last_n", -1);
  const std::string bytes = writer.Header();
  const auto file = GgufFile::Parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file.ok());
  const SamplingParams params = DefaultSampling(*file);
  EXPECT_EQ(params.temperature, 0.6f);
  EXPECT_EQ(params.top_k, 20);
  EXPECT_EQ(params.repeat_penalty, 1.1f);
  const SamplingParams defaults;
  EXPECT_EQ(params.top_p, defaults.top_p);
  EXPECT_EQ(params.min_p, defaults.min_p);
  EXPECT_EQ(params.repeat_last_n, defaults.repeat_last_n);
  EXPECT_TRUE(Validate(params).ok());
}

}  // namespace
}  // namespace bulkhead::engine
