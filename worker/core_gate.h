// How many of a process's workers compute at once. Each holds the gate while it
// computes and lets go of it while it waits for others, so that no more threads
// want a core than there are, and none of them waits for one that needs its
// place.
//
//   CoreGate gate(2);
//   const CoreGate::Hold hold(&gate);    // from here on it computes
//   {
//     const CoreGate::Pause pause(&gate);  // and waits for an update
//     ...
//   }

#ifndef RIVULET_WORKER_CORE_GATE_H_
#define RIVULET_WORKER_CORE_GATE_H_

#include "absl/base/thread_annotations.h"
#include "common/base/check.h"
#include "common/base/sync.h"

namespace rivulet {

// Thread-safe.
class CoreGate {
 public:
  explicit CoreGate(int cores) : free_(cores) { RV_CHECK_GT(cores, 0); }
  CoreGate(const CoreGate&) = delete;
  CoreGate& operator=(const CoreGate&) = delete;

  // Holds a core for its scope, Pause lets go of one; both do nothing where
  // there is no gate. Pause only where the thread holds one.
  class Hold {
   public:
    explicit Hold(CoreGate* gate) : gate_(gate) {
      if (gate_ != nullptr) gate_->Enter();
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold() {
      if (gate_ != nullptr) gate_->Leave();
    }

   private:
    CoreGate* const gate_;
  };
  class Pause {
   public:
    explicit Pause(CoreGate* gate) : gate_(gate) {
      if (gate_ != nullptr) gate_->Leave();
    }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
    ~Pause() {
      if (gate_ != nullptr) gate_->Enter();
    }

   private:
    CoreGate* const gate_;
  };

 private:
  // Whoever holds a core computes, and comes to an end of it.
  void Enter() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    while (free_ == 0) changed_.Wait(&mu_);
    --free_;
  }
  void Leave() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    ++free_;
    changed_.Signal();
  }

  Mutex mu_;
  CondVar changed_;
  int free_ ABSL_GUARDED_BY(mu_);
};

}  // namespace rivulet

#endif  // RIVULET_WORKER_CORE_GATE_H_
