#include "daemon/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/sys.h"
#include "daemon/config_keys.h"
#include "daemon/config_sources.h"
#include "daemon/units.h"

namespace bulkhead::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

LoadedConfig Defaults() {
  Surroundings root;
  root.worker = "/usr/libexec/bulkhead/bulkhead-worker";
  return DefaultConfig(root);
}

absl::StatusOr<LoadedConfig> Load(const std::string& text) {
  ASSIGN_OR_RETURN(const std::vector<Setting> settings, ParseConfigText(text, "test.toml"));
  return Apply(Defaults(), settings);
}

std::string ErrorOf(const std::string& text) { return Message(Load(text).status()); }

TEST(ConfigTest, NamesTheLineOfASectionThatIsNoName) {
  const auto settings = ParseConfigText("[queue]\ntotal = 3\n[~paths]\n", "f.toml");
  EXPECT_EQ(ReasonOf(settings.status()), Reason::kInvalidRequest);
  EXPECT_NE(Message(settings.status()).find("f.toml:3"), std::string::npos) << Message(settings.status());
}

TEST(ConfigTest, TakesForeignLettersInStringsAndCommentsOnly) {
  const auto taken = ParseConfigText("# caf\u00e9 \ufe0f\n[residency]\npin = ['\ufef5', \"\u00e9\"]\n", "f.toml");
  ASSERT_TRUE(taken.ok()) << Message(taken.status());
  EXPECT_EQ(taken->at(0).values, (std::vector<std::string>{"\ufef5", "\u00e9"}));
  EXPECT_FALSE(ParseConfigText("[log]\n\ufef5 = 1\n", "f.toml").ok());
  EXPECT_FALSE(ParseConfigText("[log]\nlevel\ufef5= 1\n", "f.toml").ok());
}

TEST(ConfigTest, AnEmptyFileGivesTheDefaults) {
  const auto loaded = Load("");
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->config, Defaults().config);
}

TEST(ConfigTest, TheShippedFileNamesEveryKeyWithItsDefault) {
  std::ifstream file(BULKHEAD_SHIPPED_CONFIG);
  std::string text;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#") && !line.starts_with("# ")) line.erase(0, 1);
    text += line + "\n";
  }
  const auto loaded = Load(text);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config, Defaults().config);
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_EQ(loaded->origins.count(std::string(key.name)), 1u) << key.name << " is not in the file";
  }
}

TEST(ConfigTest, AnUnknownKeyIsAnErrorNamingFileAndLine) {
  EXPECT_THAT(ErrorOf("[queue]\ntotal = 300\nlenght = 5\n"), HasSubstr("test.toml:3: unknown key queue.lenght"));
  EXPECT_THAT(ErrorOf("[queu]\ntotal = 3\n"), HasSubstr("test.toml:1: unknown section queu"));
  EXPECT_THAT(ErrorOf("total = 3\n"), HasSubstr("test.toml:1: unknown key total"));
}

TEST(ConfigTest, ASyntaxErrorNamesItsLine) {
  EXPECT_THAT(ErrorOf("[queue]\n\ntotal = = 1\n"), HasSubstr("test.toml:3"));
}

TEST(ConfigTest, AWrongTypeNamesTheKey) {
  EXPECT_THAT(ErrorOf("[queue]\ntotal = true\n"), HasSubstr("test.toml:2: queue.total: takes a string or a whole"));
  EXPECT_THAT(ErrorOf("[residency]\npin = [1]\n"), HasSubstr("test.toml:2: residency.pin: takes a list of strings"));
  EXPECT_THAT(ErrorOf("[queue]\nwait = [\"1s\"]\n"), HasSubstr("queue.wait: takes one value"));
}

TEST(ConfigTest, AValueOutsideItsLimitsNamesValueAndLimit) {
  EXPECT_THAT(ErrorOf("[model]\nsequences = 129\n"),
              HasSubstr("model.sequences: '129' is not a whole number from 1 to 128"));
  EXPECT_THAT(ErrorOf("[model]\nsequences = -1\n"), HasSubstr("'-1'"));
  EXPECT_THAT(ErrorOf("[budget]\nprofile = \"lavish\"\n"),
              HasSubstr("'lavish' is none of everyday, local_focused, custom"));
  EXPECT_THAT(ErrorOf("[limits]\nrequest_bytes = \"65 MiB\"\n"), HasSubstr("outside 65536 to 67108864"));
  EXPECT_THAT(ErrorOf("[access]\nsocket_mode = \"0888\"\n"), HasSubstr("octal mode"));
  EXPECT_THAT(ErrorOf("[watchdog]\ntoken = \"5\"\n"), HasSubstr("'5' is not a duration"));
}

TEST(ConfigTest, LaterSettingsWinAndTheirOriginIsShown) {
  auto settings = ParseConfigText("[queue]\ntotal = 300\n", "a.toml");
  ASSERT_TRUE(settings.ok());
  settings->push_back({"paths.socket", {"/tmp/s"}, false, "--socket", kFromFlag});
  settings->push_back({"queue.wait", {"90s"}, false, "uid 0", kFromRuntime});
  const auto loaded = Apply(Defaults(), *settings);
  ASSERT_TRUE(loaded.ok());
  std::map<std::string, ShownSetting> shown;
  for (const ShownSetting& setting : Show(*loaded)) shown[setting.name] = setting;
  EXPECT_EQ(shown["queue.total"].value, "300");
  EXPECT_EQ(shown["queue.total"].origin, "a.toml:2");
  EXPECT_EQ(shown["paths.socket"].value, "\"/tmp/s\"");
  EXPECT_EQ(shown["queue.total"].source, "file");
  EXPECT_EQ(shown["paths.socket"].origin, "--socket");
  EXPECT_EQ(shown["paths.socket"].source, "flag");
  EXPECT_EQ(shown["queue.wait"].origin, "runtime uid 0");
  EXPECT_EQ(shown["queue.wait"].source, "runtime");
  EXPECT_EQ(shown["queue.per_model"].origin, "default");
  EXPECT_EQ(shown["queue.per_model"].source, "default");
}

TEST(ConfigTest, PeopleSeeValuesWithoutQuotes) {
  const auto loaded = Load("[residency]\npin = [\"a\", \"b\"]\n[access]\nsocket_mode = \"0600\"\n");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  std::map<std::string, std::string> text;
  for (const ShownSetting& setting : Show(*loaded)) text[setting.name] = setting.text;
  EXPECT_EQ(text["residency.pin"], "a,b");
  EXPECT_EQ(text["access.socket_mode"], "0600");
  EXPECT_EQ(text["budget.profile"], "everyday");
  EXPECT_EQ(text["limits.request_bytes"], "16 MiB");
  EXPECT_EQ(text["queue.wait"], "2m");
}

class ConfDTest : public ::testing::Test {
 protected:
  ConfDTest() : directory_(std::filesystem::temp_directory_path() / fmt::format("confd-{}", sys::GetPid())) {
    std::filesystem::create_directories(directory_);
  }
  ~ConfDTest() override { std::filesystem::remove_all(directory_); }
  void Write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((directory_ / name).parent_path());
    std::ofstream(directory_ / name) << text;
  }
  absl::StatusOr<LoadedConfig> Load(std::vector<Setting> flags = {}) {
    return ConfigSources{{}, directory_ / "bulkhead.toml", std::move(flags)}.Load();
  }
  std::filesystem::path directory_;
};

TEST_F(ConfDTest, PiecesComeAfterTheFileInTheOrderOfTheirNamesAndBeforeFlags) {
  Write("bulkhead.toml", "[queue]\ntotal = 70\nper_model = 7\n[model]\nsequences = 2\n");
  Write("conf.d/20-b.toml", "[queue]\ntotal = 90\n");
  Write("conf.d/10-a.toml", "[queue]\ntotal = 80\nper_model = 75\n");
  Write("conf.d/.hidden.toml", "nonsense");
  Write("conf.d/README", "nonsense");
  const auto loaded = Load({{"model.sequences", {"3"}, false, "--flag", kFromFlag}});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.queue.total, 90u);
  EXPECT_EQ(loaded->config.queue.per_model, 75u);
  EXPECT_EQ(loaded->config.model.sequences, 3u);
  EXPECT_EQ(loaded->origins.at("queue.total").source, kFromConfD);
  EXPECT_EQ(loaded->origins.at("queue.total").place, (directory_ / "conf.d/20-b.toml:2").string());
}

TEST_F(ConfDTest, AMistakeInAPieceNamesItAndItsLine) {
  Write("bulkhead.toml", "");
  Write("conf.d/a.toml", "[queue]\nlenght = 1\n");
  EXPECT_THAT(Message(Load().status()), HasSubstr("conf.d/a.toml:2: unknown key queue.lenght"));
}

TEST_F(ConfDTest, AFileWithoutPiecesIsWhole) {
  Write("bulkhead.toml", "[queue]\ntotal = 70\n");
  const auto loaded = Load();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.queue.total, 70u);
}

TEST(ConfigTest, WhatIsShownReadsBackToTheSameConfiguration) {
  auto changed = Load(
      "[queue]\nwait = \"90s\"\n[budget]\nprofile = \"custom\"\nbytes = \"3 GiB\"\n[residency]\npin = [\"a\\\"b\", "
      "\"c\\rd\\u007f\"]\n");
  ASSERT_TRUE(changed.ok()) << changed.status();
  std::string text;
  for (const ShownSetting& setting : Show(*changed)) {
    const size_t dot = setting.name.find('.');
    text += setting.name.substr(0, dot) + "." + setting.name.substr(dot + 1) + " = " + setting.value + "\n";
  }
  const auto again = Load(text);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->config, changed->config);
}

TEST(ConfigTest, KeysReadAtStartOnlyKeepTheirValueOverAReload) {
  const auto now = Load("[paths]\nsocket = \"/a\"\n");
  const auto next = Load("[paths]\nsocket = \"/b\"\n[queue]\ntotal = 99\nper_model = 9\n");
  ASSERT_TRUE(now.ok() && next.ok());
  EXPECT_THAT(NeedRestart(now->config, next->config), ElementsAre("paths.socket"));
  const LoadedConfig kept = KeepStartOnly(*now, *next);
  EXPECT_EQ(kept.config.paths.socket, "/a");
  EXPECT_EQ(kept.config.queue.total, 99u);
}

TEST(ConfigTest, PathsFollowRootUserAndSystemd) {
  Surroundings user;
  user.uid = 1000;
  user.environment = {{"HOME", "/home/u"}, {"XDG_RUNTIME_DIR", "/run/user/1000"}};
  EXPECT_EQ(DefaultConfig(user).config.paths.socket, "/run/user/1000/bulkhead/bulkhead.sock");
  EXPECT_EQ(DefaultConfig(user).config.paths.state, "/home/u/.local/state/bulkhead");
  EXPECT_EQ(DefaultConfigPath(user), "/home/u/.config/bulkhead/bulkhead.toml");
  EXPECT_EQ(Defaults().config.paths.socket, "/run/bulkhead/bulkhead.sock");
  Surroundings service = user;
  service.environment = {{"STATE_DIRECTORY", "/var/lib/bulkhead"}, {"RUNTIME_DIRECTORY", "/run/bulkhead"}};
  const LoadedConfig loaded = DefaultConfig(service);
  EXPECT_EQ(loaded.config.paths.socket, "/run/bulkhead/bulkhead.sock");
  EXPECT_EQ(loaded.config.paths.models.front(), "/var/lib/bulkhead/models");
  EXPECT_EQ(loaded.origins.at("paths.state").source, kFromEnvironment);
}

TEST(UnitsTest, DurationsAndSizesReadAndWriteTheSame) {
  EXPECT_EQ(*ParseDuration("500ms"), milliseconds(500));
  EXPECT_EQ(*ParseDuration("10m"), minutes(10));
  EXPECT_EQ(FormatDuration(minutes(90)), "90m");
  EXPECT_EQ(FormatDuration(Duration(0)), "0");
  EXPECT_EQ(*ParseBytes("3 GiB"), 3ull << 30);
  EXPECT_EQ(*ParseBytes("4096"), 4096u);
  EXPECT_EQ(FormatBytes(3ull << 29), "1536 MiB");
  for (const char* bad : {"", "s", "-1s", "1.5s", "9223372036854775807d", "1 fortnight"}) {
    EXPECT_FALSE(ParseDuration(bad).ok()) << bad;
  }
  for (const char* bad : {"", "GiB", "20000000 TiB", "1 GB"}) EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
}

}  // namespace
}  // namespace bulkhead::daemon
