// The models this daemon knows by name. Looked up and rescanned on demand, on pool threads; answers come on the loop's
// thread, never inside the call. Loop thread only. Callbacks of a destroyed catalogue are not called.
#pragma once

#include <uv.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "daemon/model_scan.h"

namespace bulkhead::daemon {

struct OpenedModel {
  std::string name;
  std::shared_ptr<const UniqueFd> file;
  FileIdentity identity;
};

class Catalogue {
 public:
  using ScanDone = std::function<void(std::shared_ptr<const ModelScan>)>;
  using OpenDone = std::function<void(absl::StatusOr<OpenedModel>)>;

  Catalogue(uv_loop_t* loop, std::vector<std::string> directories);
  ~Catalogue();
  Catalogue(const Catalogue&) = delete;
  Catalogue& operator=(const Catalogue&) = delete;

  // From the next scan on.
  void set_directories(std::vector<std::string> directories);

  // Walks the directories anew. Calls made while a walk runs share the next one.
  void Rescan(ScanDone done);

  // A read-only descriptor of the model's file as it is now, shared by all who use the very same file. A name not
  // known, or whose file has gone, causes one rescan. kModelNotFound names the directories; a model with a problem is
  // kModelInvalid and says which.
  void Open(const std::string& name, OpenDone done);

  // Of the last scan; may be empty before the first.
  [[nodiscard]] const ModelScan& last_scan() const { return *scan_; }

 private:
  void StartScan();
  OpenedModel Share(const std::string& name, OpenedFile opened);
  void OpenFound(const std::string& name, bool may_rescan, OpenDone done);
  [[nodiscard]] absl::Status NotFound(const std::string& name) const;

  uv_loop_t* loop_;
  std::vector<std::string> directories_;
  std::shared_ptr<const ModelScan> scan_ = std::make_shared<ModelScan>();
  struct Shared {
    FileIdentity identity;
    std::weak_ptr<const UniqueFd> file;
  };
  std::map<std::string, Shared> shared_;  // by name; those nobody uses any more go with the next opening
  bool scanning_ = false;
  std::vector<ScanDone> running_;
  std::vector<ScanDone> next_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace bulkhead::daemon
