// Test support: a random-weight model in a temporary file that goes with the object.
#pragma once

#include <string>

#include "tools/make_model/model_spec.h"

namespace bulkhead::engine {

class TemporaryModel {
 public:
  // Fails the test where the file cannot be written.
  explicit TemporaryModel(const tools::ModelSpec& spec);
  TemporaryModel(const TemporaryModel&) = delete;
  TemporaryModel& operator=(const TemporaryModel&) = delete;
  ~TemporaryModel();

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace bulkhead::engine
