#include "runtime/store_later.h"

#include <exception>
#include <utility>

namespace tessera::runtime {
namespace {

thread_local StoreLater* innermost = nullptr;

}  // namespace

StoreLater::StoreLater() : outer_(std::exchange(innermost, this)) {}

StoreLater::~StoreLater() {
  innermost = outer_;
  for (const auto& store : stores_) {
    try {
      store();
    } catch (const std::exception&) {
      // Out of memory. The kernel is in use already; another process will keep it.
    }
  }
}

void StoreLater::run(std::function<void()> store) {
  if (innermost) {
    innermost->stores_.push_back(std::move(store));
  } else {
    store();
  }
}

}  // namespace tessera::runtime
