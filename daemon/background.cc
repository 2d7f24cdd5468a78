#include "daemon/background.h"

#include <memory>

namespace bulkhead::daemon {
namespace {

struct Job {
  uv_work_t request = {};
  std::function<void()> work;
  std::function<void()> after;
};

}  // namespace

void RunInBackground(uv_loop_t* loop, std::function<void()> work, std::function<void()> after) {
  auto job = std::make_unique<Job>();
  job->work = std::move(work);
  job->after = std::move(after);
  job->request.data = job.get();
  const int error = uv_queue_work(
      loop, &job->request, [](uv_work_t* request) { static_cast<Job*>(request->data)->work(); },
      [](uv_work_t* request, int) {
        const std::unique_ptr<Job> finished(static_cast<Job*>(request->data));
        finished->after();
      });
  // uv_queue_work fails only for a missing callback.
  if (error == 0) job.release();
}

}  // namespace bulkhead::daemon
