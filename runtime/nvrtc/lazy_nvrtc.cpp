#include "runtime/nvrtc/lazy_nvrtc.h"

namespace tessera::runtime {

const Nvrtc& LazyNvrtc::open() {
  const std::lock_guard lock(mutex_);
  if (!nvrtc_ && !error_) {
    try {
      nvrtc_ = open_nvrtc(loader_, search_);
      id_ = nvrtc_->id();
    } catch (const Error& error) {
      error_ = error;
    }
  }
  if (error_) throw Error(*error_);
  return *nvrtc_;
}

NvrtcId LazyNvrtc::id() {
  {
    const std::lock_guard lock(mutex_);
    if (!id_ && !error_) id_ = identify_nvrtc(loader_, search_);
    if (id_) return *id_;
  }
  return open().id();
}

}  // namespace tessera::runtime
