#include "runtime/image.h"

namespace tessera::runtime {
namespace {

template <class From, class To>
void copy(const From& from, To& to) {
  to.op = from.op;
  to.entry = from.entry;
  to.params = from.params;
  to.threads = from.threads;
  to.shared_bytes = from.shared_bytes;
  to.cluster = from.cluster;
  to.options = from.options;
  to.waits_for_previous = from.waits_for_previous;
  to.cooperative = from.cooperative;
}

}  // namespace

void copy_facts(const KernelSource& source, Image& image) {
  copy(source, image);
}

KernelSource facts_of(const Image& image) {
  KernelSource facts;
  copy(image, facts);
  return facts;
}

}  // namespace tessera::runtime
