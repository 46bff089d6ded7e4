#include "server/controller/status_broadcaster.h"

namespace rivulet {

// Fields are guarded by the broadcaster's mutex.
class StatusBroadcaster::Watcher final
    : public grpc::ServerWriteReactor<v1::RunStatus> {
 public:
  explicit Watcher(StatusBroadcaster* owner) : owner_(owner) {}

  void OnWriteDone(bool ok) override {
    MutexLock lock(&owner_->mu_);
    writing = false;
    if (!ok) gone = true;
    owner_->WriteOn(this);
  }

  void OnCancel() override {
    MutexLock lock(&owner_->mu_);
    gone = true;
    owner_->WriteOn(this);
  }

  void OnDone() override {
    {
      MutexLock lock(&owner_->mu_);
      owner_->watchers_.erase(this);
      if (owner_->watchers_.empty()) owner_->idle_.SignalAll();
    }
    delete this;
  }

  v1::RunStatus message;  // gRPC's while `writing`
  bool stale = true;      // has not got the newest status
  bool writing = false;
  bool gone = false;
  bool finished = false;

 private:
  StatusBroadcaster* const owner_;
};

StatusBroadcaster::~StatusBroadcaster() {
  Close();
  MutexLock lock(&mu_);
  while (!watchers_.empty()) idle_.Wait(&mu_);
}

grpc::ServerWriteReactor<v1::RunStatus>* StatusBroadcaster::Accept() {
  auto* watcher = new Watcher(this);
  MutexLock lock(&mu_);
  watchers_.insert(watcher);
  WriteOn(watcher);
  return watcher;
}

void StatusBroadcaster::Publish(const v1::RunStatus& status) {
  MutexLock lock(&mu_);
  newest_ = status;
  for (Watcher* watcher : watchers_) {
    watcher->stale = true;
    WriteOn(watcher);
  }
}

void StatusBroadcaster::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
  for (Watcher* watcher : watchers_) WriteOn(watcher);
}

int StatusBroadcaster::num_watchers() const {
  MutexLock lock(&mu_);
  return static_cast<int>(watchers_.size());
}

void StatusBroadcaster::WriteOn(Watcher* watcher) {
  if (watcher->writing || watcher->finished) return;
  if (newest_.has_value() && watcher->stale && !watcher->gone) {
    watcher->message = *newest_;
    watcher->stale = false;
    watcher->writing = true;
    watcher->StartWrite(&watcher->message);
  } else if (watcher->gone || closed_) {
    watcher->finished = true;
    watcher->Finish(grpc::Status::OK);
  }
}

}  // namespace rivulet
