#include "daemon/catalogue.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "daemon/background.h"

namespace bulkhead::daemon {

Catalogue::Catalogue(uv_loop_t* loop, std::vector<std::string> directories)
    : loop_(loop), directories_(std::move(directories)) {}

Catalogue::~Catalogue() { *alive_ = false; }

void Catalogue::set_directories(std::vector<std::string> directories) { directories_ = std::move(directories); }

void Catalogue::Rescan(ScanDone done) {
  next_.push_back(std::move(done));
  if (!scanning_) StartScan();
}

void Catalogue::StartScan() {
  scanning_ = true;
  running_ = std::exchange(next_, {});
  auto result = std::make_shared<ModelScan>();
  RunInBackground(
      loop_, [result, directories = directories_] { *result = ScanModels(directories); },
      [this, result, alive = alive_] {
        if (!*alive) return;
        scan_ = result;
        scanning_ = false;
        const std::vector<ScanDone> waiters = std::exchange(running_, {});
        if (!next_.empty()) StartScan();
        for (const ScanDone& waiter : waiters) {
          waiter(result);
          if (!*alive) return;
        }
      });
}

void Catalogue::Open(const std::string& name, OpenDone done) {
  if (scan_->Find(name) != nullptr) return OpenFound(name, true, std::move(done));
  Rescan([this, name, done = std::move(done)](const auto&) { OpenFound(name, false, done); });
}

void Catalogue::OpenFound(const std::string& name, bool may_rescan, OpenDone done) {
  const FoundModel* model = scan_->Find(name);
  if (model == nullptr) return done(NotFound(name));
  if (!model->problem.empty() && may_rescan) {
    return Rescan([this, name, done = std::move(done)](const auto&) { OpenFound(name, false, done); });
  }
  if (!model->problem.empty()) {
    return done(Error(Reason::kModelInvalid, fmt::format("model {}: {}", name, model->problem)));
  }
  auto opened = std::make_shared<absl::StatusOr<OpenedFile>>(Error(Reason::kInternal, "not opened"));
  RunInBackground(
      loop_, [opened, path = model->path] { *opened = OpenModelFile(path); },
      [this, opened, name, may_rescan, done = std::move(done), alive = alive_] {
        if (!*alive) return;
        if (!opened->ok() && may_rescan) {
          return Rescan([this, name, done](const auto&) { OpenFound(name, false, done); });
        }
        if (!opened->ok()) return done(opened->status());
        done(Share(name, std::move(**opened)));
      });
}

// A thousand requests for one file hold one descriptor, not a thousand.
OpenedModel Catalogue::Share(const std::string& name, OpenedFile opened) {
  std::erase_if(shared_, [](const auto& entry) { return entry.second.file.expired(); });
  Shared& known = shared_[name];
  std::shared_ptr<const UniqueFd> file = known.file.lock();
  if (file == nullptr || known.identity != opened.identity) {
    file = std::make_shared<const UniqueFd>(std::move(opened.fd));
    known = {opened.identity, file};
  }
  return {name, std::move(file), opened.identity};
}

absl::Status Catalogue::NotFound(const std::string& name) const {
  if (!IsShowableName(name)) return Error(Reason::kModelNotFound, "the model's name is empty or cannot be shown");
  return Error(Reason::kModelNotFound,
               fmt::format("model {}: no such file in {}", name, fmt::join(directories_, ", ")));
}

}  // namespace bulkhead::daemon
