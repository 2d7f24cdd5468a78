#include "tests/engine/temporary_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>

#include "base/sys.h"
#include "tools/make_model/write_model.h"

namespace bulkhead::engine {

TemporaryModel::TemporaryModel(const tools::ModelSpec& spec) {
  static std::atomic<int> made{0};
  path_ = fmt::format("{}/bulkhead-{}-{}.gguf", testing::TempDir(), sys::GetPid(), made.fetch_add(1));
  const auto written = tools::WriteModelFile(spec, path_);
  EXPECT_TRUE(written.ok()) << Message(written.status());
}

TemporaryModel::~TemporaryModel() { sys::Unlink(path_.c_str()); }

}  // namespace bulkhead::engine
