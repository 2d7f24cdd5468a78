#include "daemon/catalogue.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/sys.h"
#include "tests/daemon/loop.h"

namespace bulkhead::daemon {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CatalogueTest : public ::testing::Test {
 protected:
  CatalogueTest() : root_(fs::temp_directory_path() / ("catalogue-" + std::to_string(sys::GetPid()))) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~CatalogueTest() override { fs::remove_all(root_); }

  std::string Put(const std::string& name) {
    const fs::path path = root_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << name;
    return path;
  }
  ModelScan Scan() { return ScanModels({root_}); }
  static std::vector<std::string> Names(const ModelScan& scan) {
    std::vector<std::string> names;
    for (const FoundModel& model : scan.models) names.push_back(model.name);
    return names;
  }

  fs::path root_;
};

TEST_F(CatalogueTest, NamesAreFileStemsFoundRecursively) {
  Put("b.gguf");
  Put("deep/er/a.v1.gguf");
  Put("notes.txt");
  Put(".partial.gguf");
  EXPECT_THAT(Names(Scan()), ElementsAre("a.v1", "b"));
}

TEST_F(CatalogueTest, SymbolicLinksAreFollowedAndLoopsEnd) {
  Put("real/m.gguf");
  fs::create_symlink("m.gguf", root_ / "real/alias.gguf");
  fs::create_directory_symlink("..", root_ / "real/up");
  fs::create_directory_symlink(".", root_ / "self");
  const ModelScan scan = Scan();
  EXPECT_THAT(Names(scan), ElementsAre("alias", "m"));
  EXPECT_EQ(scan.Find("alias")->identity, scan.Find("m")->identity);
  EXPECT_THAT(scan.problems, IsEmpty());
}

TEST_F(CatalogueTest, TwoFilesOfOneNameAreAnErrorNamingBoth) {
  Put("x/m.gguf");
  Put("y/m.gguf");
  const ModelScan scan = Scan();
  EXPECT_THAT(scan.Find("m")->problem, AllOf(HasSubstr("x/m.gguf"), HasSubstr("y/m.gguf")));
  EXPECT_EQ(scan.problems.size(), 1u);
}

TEST_F(CatalogueTest, OneFileUnderTwoPathsIsOneModel) {
  Put("x/m.gguf");
  fs::create_directories(root_ / "y");
  fs::create_symlink("../x/m.gguf", root_ / "y/m.gguf");
  const ModelScan scan = Scan();
  EXPECT_THAT(Names(scan), ElementsAre("m"));
  EXPECT_EQ(scan.Find("m")->problem, "");
}

TEST_F(CatalogueTest, SplitFilesAreRefusedByName) {
  Put("big-00001-of-00003.gguf");
  Put("small-1-of-3.gguf");
  const ModelScan scan = Scan();
  EXPECT_THAT(scan.Find("big-00001-of-00003")->problem, HasSubstr("split"));
  EXPECT_EQ(scan.Find("small-1-of-3")->problem, "");
}

TEST_F(CatalogueTest, PipesDanglingLinksAndMissingDirectoriesDoNoHarm) {
  ASSERT_EQ(mkfifo((root_ / "pipe.gguf").c_str(), 0600), 0);
  fs::create_symlink("nowhere", root_ / "gone.gguf");
  const ModelScan scan = ScanModels({root_, root_ / "missing"});
  EXPECT_THAT(scan.models, IsEmpty());
  EXPECT_THAT(scan.problems, ElementsAre(AllOf(HasSubstr("gone.gguf"), HasSubstr("No such file")),
                                         AllOf(HasSubstr("missing"), HasSubstr("No such file"))));
}

TEST_F(CatalogueTest, ANameThatCannotBeShownIsAProblemNotAModel) {
  Put("bad\xFFname.gguf");
  Put("line\nbreak.gguf");
  const ModelScan scan = Scan();
  EXPECT_THAT(scan.models, IsEmpty());
  ASSERT_EQ(scan.problems.size(), 2u);
  for (const std::string& problem : scan.problems) EXPECT_TRUE(IsShowableName(problem));
}

TEST_F(CatalogueTest, PassedDescriptorsMustBeRegularAndReadOnly) {
  const std::string path = Put("m.gguf");
  EXPECT_TRUE(CheckPassedFile(UniqueFd(sys::Open(path.c_str(), O_RDONLY)).get()).ok());
  EXPECT_THAT(Message(CheckPassedFile(UniqueFd(sys::Open(path.c_str(), O_RDWR)).get()).status()),
              HasSubstr("reading only"));
  EXPECT_THAT(Message(CheckPassedFile(UniqueFd(sys::Open(path.c_str(), O_PATH)).get()).status()),
              HasSubstr("reading only"));
  EXPECT_THAT(Message(CheckPassedFile(UniqueFd(sys::Open(root_.c_str(), O_RDONLY)).get()).status()),
              HasSubstr("regular"));
}

TEST_F(CatalogueTest, AModelThatAppearsLaterIsFoundOnDemand) {
  TestLoop loop;
  Catalogue catalogue(loop.get(), {root_});
  absl::StatusOr<OpenedModel> result = Error(Reason::kInternal, "pending");
  int answers = 0;
  const auto take = [&](absl::StatusOr<OpenedModel> opened) {
    result = std::move(opened);
    ++answers;
  };
  catalogue.Open("late", take);
  EXPECT_EQ(answers, 0) << "answered inside the call";
  ASSERT_TRUE(loop.RunUntil([&] { return answers == 1; }));
  EXPECT_EQ(ReasonOf(result.status()), Reason::kModelNotFound);
  Put("late.gguf");
  catalogue.Open("late", take);
  ASSERT_TRUE(loop.RunUntil([&] { return answers == 2; }));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->file->valid());
}

TEST_F(CatalogueTest, AModelWhoseFileMovedIsFoundAgain) {
  TestLoop loop;
  Put("a/m.gguf");
  Catalogue catalogue(loop.get(), {root_});
  int answers = 0;
  absl::StatusOr<OpenedModel> result = Error(Reason::kInternal, "pending");
  const auto take = [&](absl::StatusOr<OpenedModel> opened) {
    result = std::move(opened);
    ++answers;
  };
  catalogue.Open("m", take);
  ASSERT_TRUE(loop.RunUntil([&] { return answers == 1; }));
  fs::rename(root_ / "a", root_ / "b");
  catalogue.Open("m", take);
  ASSERT_TRUE(loop.RunUntil([&] { return answers == 2; }));
  EXPECT_TRUE(result.ok()) << result.status();
}

TEST_F(CatalogueTest, ADestroyedCatalogueAnswersNobody) {
  TestLoop loop;
  int answers = 0;
  {
    Catalogue catalogue(loop.get(), {root_});
    catalogue.Open("m", [&](const auto&) { ++answers; });
  }
  loop.RunReady();
  EXPECT_EQ(answers, 0);
}

}  // namespace
}  // namespace bulkhead::daemon
