// The verbs of `bulkhead`, one function each: it asks the daemon, prints, and returns the exit status. Each leaves its
// own failures told (Session::Fail).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/session.h"

namespace bulkhead::cli {

struct RunOptions {
  std::string model;
  std::optional<std::string> prompt;  // absent: a chat loop on a terminal, else stdin; "-": stdin
  std::string system;
  std::string file;  // its text follows the prompt
  bool raw = false;
  uint32_t max_tokens = 0;
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repeat_penalty;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  uint32_t context = 0;
  uint64_t timeout_ms = 0;
  std::string priority = "normal";
  std::string on_worker_death = "resume";
  bool no_stream = false;
  bool ids = false;
};
ExitStatus Run(Session& session, const RunOptions& options);

struct LoadOptions {
  std::string model;
  bool pin = false;
  uint32_t context = 0;
  uint32_t sequences = 0;
};
ExitStatus Load(Session& session, const LoadOptions& options);
ExitStatus Preflight(Session& session, const LoadOptions& options);

struct ReleaseOptions {
  std::vector<std::string> models;
  bool all = false;
  std::optional<uint64_t> idle_for_ms;
};
ExitStatus Release(Session& session, const ReleaseOptions& options);

ExitStatus Terminate(Session& session, const std::string& inference_id);
ExitStatus Cancel(Session& session, const std::string& inference_id);
ExitStatus Unblock(Session& session, const std::string& model);

struct PsOptions {
  bool requests = false;
  bool memory = false;
};
ExitStatus Ps(Session& session, const PsOptions& options);
ExitStatus Models(Session& session);
ExitStatus Show(Session& session, const std::string& model);
ExitStatus Tokenize(Session& session, const std::string& model, const std::string& text);
ExitStatus Deaths(Session& session, uint32_t last);
struct PolicyOptions {
  std::vector<std::string> get;  // names, or sections; empty: everything
  std::vector<std::string> set;  // "name=value", to be changed first
};
ExitStatus Policy(Session& session, const PolicyOptions& options);
// Prints the lives of workers and requests as they happen, until Ctrl-C; `model`: this one's only.
ExitStatus Events(Session& session, const std::string& model);
ExitStatus Doctor(Session& session);
ExitStatus Version(Session& session);

}  // namespace bulkhead::cli
