// `bulkhead-worker --inspect` as a program: what it prints, and how it ends on files that are none.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "bulkhead/v1/types.pb.h"
#include "ipc/frame.h"
#include "ipc/worker_abi.h"
#include "tests/worker/worker_process.h"

namespace bulkhead::worker {
namespace {

struct Finished {
  int code = -1;
  std::string output;
};

// `redirections` in the shell's words.
Finished Shell(const std::string& arguments, const std::string& redirections = "") {
  const std::string command = BinPath("bulkhead-worker") + " " + arguments + " " + redirections;
  Finished run;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  size_t got = 0;
  while ((got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0) run.output.append(buffer.data(), got);
  const int status = pclose(pipe);
  run.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return run;
}

class InspectTest : public testing::Test {
 protected:
  InspectTest() : model_("/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(SmallModel())) {
    char name[] = "/tmp/bulkhead-inspect-XXXXXX";
    directory_ = mkdtemp(name);
  }
  ~InspectTest() override { std::filesystem::remove_all(directory_); }
  std::string Write(const std::string& name, const std::string& bytes) {
    std::ofstream(directory_ + "/" + name, std::ios::binary) << bytes;
    return directory_ + "/" + name;
  }

  std::string model_;
  std::string directory_;
};

TEST_F(InspectTest, PrintsTheManifestAsJsonWithNumbersAsNumbers) {
  const Finished run = Shell("--inspect " + model_);
  ASSERT_EQ(run.code, 0);
  const auto json = nlohmann::json::parse(run.output);
  EXPECT_EQ(json["architecture"], "qwen3");
  EXPECT_EQ(json["chat_template"], "chatml");
  EXPECT_TRUE(json["kv_bytes_per_token"].is_number_unsigned());
  EXPECT_GT(json["weight_bytes"].get<uint64_t>(), 0u);
}

TEST_F(InspectTest, PrintsOneFrameOfTheSameManifestFromDescriptorFour) {
  const Finished run = Shell("--inspect=frame", "4<" + model_);
  ASSERT_EQ(run.code, 0);
  ipc::FrameReader reader(ipc::kMaxControlFrame);
  std::string_view bytes = run.output;
  const auto payload = reader.Next(&bytes);
  ASSERT_TRUE(payload.ok() && payload->has_value());
  EXPECT_TRUE(bytes.empty());
  v1::Manifest manifest;
  ASSERT_TRUE(manifest.ParseFromArray((*payload)->data(), static_cast<int>((*payload)->size())));
  EXPECT_EQ(manifest.architecture(), "qwen3");
  EXPECT_EQ(manifest.quantisation(), "Q8_0");
}

TEST_F(InspectTest, AFileThatIsNoModelHasItsOwnExitCodeAndAReason) {
  for (const std::string& bytes : {std::string("not a model"), std::string(), std::string("GGUF\x03\0\0\0", 8),
                                   std::string("GGUF\x03\0\0\0", 8) + std::string(16, '\xff')}) {
    const Finished run = Shell("--inspect " + Write("bad.gguf", bytes), "2>&1");
    EXPECT_EQ(run.code, ipc::kWorkerExitModelInvalid) << run.output;
    EXPECT_NE(run.output.find("bulkhead-worker: MODEL_INVALID: "), std::string::npos) << run.output;
  }
}

TEST_F(InspectTest, AMissingFileAndWrongArgumentsAreUsageErrors) {
  EXPECT_EQ(Shell("--inspect /nonexistent", "2>&1").code, ipc::kWorkerExitUsage);
  EXPECT_EQ(Shell("--frobnicate", "2>&1").code, ipc::kWorkerExitUsage);
}

}  // namespace
}  // namespace bulkhead::worker
