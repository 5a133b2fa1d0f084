// The words of the thread IR's text for bounds and barriers.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

std::string_view name(Bounds bounds) {
  switch (bounds) {
    case Bounds::proved:
      return "proved";
    case Bounds::guarded:
      return "guarded";
    case Bounds::unchecked:
      return "unchecked";
  }
  return "?";
}

std::string_view name(BarrierScope scope) {
  switch (scope) {
    case BarrierScope::warp:
      return "warp barrier";
    case BarrierScope::named:
      return "named barrier";
    case BarrierScope::named_arrive:
      return "arrive at named barrier";
    case BarrierScope::block:
      return "barrier";
    case BarrierScope::cluster:
      return "cluster barrier";
    case BarrierScope::cluster_arrive:
      return "arrive at the cluster barrier";
    case BarrierScope::cluster_wait:
      return "wait at the cluster barrier";
    case BarrierScope::grid:
      return "grid barrier";
  }
  return "?";
}

std::string_view name(Work work) {
  switch (work) {
    case Work::copies:
      return "copies";
    case Work::stores:
      return "stores";
    case Work::products:
      return "products";
  }
  return "?";
}

}  // namespace tessera::codegen
