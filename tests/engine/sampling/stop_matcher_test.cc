#include "engine/sampling/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace bulkhead::engine {
namespace {

struct Result {
  std::string text;
  std::optional<size_t> matched;
  bool operator==(const Result&) const = default;
};

Result Matched(const std::vector<std::string>& stops, const std::vector<std::string>& parts) {
  StopMatcher matcher(stops);
  Result result;
  for (const std::string& part : parts) matcher.Push(part, result.text);
  matcher.Flush(result.text);
  result.matched = matcher.matched();
  return result;
}

// The definition: the match that ends first, of those the longest.
Result ByDefinition(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      const bool ends_here = !stops[i].empty() && text.substr(0, end).ends_with(stops[i]);
      if (ends_here && (!best.has_value() || stops[i].size() > stops[*best].size())) best = i;
    }
    if (best.has_value()) return {text.substr(0, end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

TEST(StopMatcher, HoldsBackOnlyWhatMayStillMatch) {
  StopMatcher matcher({"END."});
  std::string text;
  matcher.Push("The E", text);
  EXPECT_EQ(text, "The ");
  matcher.Push("N", text);
  EXPECT_EQ(text, "The ");
  matcher.Push("E", text);
  EXPECT_EQ(text, "The EN");
  matcher.Push("ND", text);
  EXPECT_EQ(matcher.held_bytes(), 3U);
  EXPECT_EQ(matcher.Push(". more", text), 0U);
  EXPECT_EQ(text, "The EN");
  EXPECT_EQ(matcher.Push("more", text), 0U);
  matcher.Flush(text);
  EXPECT_EQ(text, "The EN");
}

TEST(StopMatcher, FlushReleasesWhatWasHeld) { EXPECT_EQ(Matched({"\n\n"}, {"a\n"}), (Result{"a\n", std::nullopt})); }

TEST(StopMatcher, WithoutStopStringsPassesEverything) {
  EXPECT_EQ(Matched({}, {"abc", "", "d"}), (Result{"abcd", std::nullopt}));
  EXPECT_EQ(Matched({""}, {"abc"}), (Result{"abc", std::nullopt}));
}

TEST(StopMatcher, OneStringInsideAnotherEndsFirst) {
  EXPECT_EQ(Matched({"abcd", "bc"}, {"xabcd"}), (Result{"xa", 1}));
  EXPECT_EQ(Matched({"c", "abc"}, {"xabc"}), (Result{"x", 1}));
}

TEST(StopMatcher, EqualsItsDefinitionForAnySplit) {
  std::mt19937 random(5);
  const auto word = [&](size_t longest) {
    std::string text(random() % (longest + 1), ' ');
    for (char& c : text) c = "ab\xc3"[random() % 3];
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops(1 + random() % 4);
    for (std::string& stop : stops) stop = word(5);
    std::vector<std::string> parts(random() % 6);
    std::string whole;
    for (std::string& part : parts) {
      part = word(6);
      whole += part;
    }
    EXPECT_EQ(Matched(stops, parts), ByDefinition(stops, whole));
  }
}

}  // namespace
}  // namespace bulkhead::engine
