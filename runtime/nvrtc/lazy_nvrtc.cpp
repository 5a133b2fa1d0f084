#include "runtime/nvrtc/lazy_nvrtc.h"

#include "runtime/nvrtc/nvrtc_use.h"

namespace tessera::runtime {

const Nvrtc& LazyNvrtc::open() {
  const std::lock_guard lock(mutex_);
  try_to_open();
  if (error_) throw Error(*error_);
  return *nvrtc_;
}

std::optional<NvrtcId> LazyNvrtc::id() {
  const std::lock_guard lock(mutex_);
  if (!id_ && !error_) id_ = identify_nvrtc(loader_, search_);
  if (!id_) try_to_open();
  return id_;
}

void LazyNvrtc::try_to_open() {
  if (nvrtc_ || error_) return;
  try {
    const NvrtcUse use;
    nvrtc_ = open_nvrtc(loader_, search_);
    id_ = nvrtc_->id();
  } catch (const Error& error) {
    error_ = error;
  }
}

}  // namespace tessera::runtime
