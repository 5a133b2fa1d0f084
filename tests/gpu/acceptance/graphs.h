#pragma once
// The graph calls of the driver, which the library itself has no use for.

#include <dlfcn.h>

#include <type_traits>

#include "tests/support/catch.h"

namespace tessera::test {

struct Graphs {
  using Handle = void*;
  int (*begin_capture)(Handle stream, int mode) = nullptr;
  int (*end_capture)(Handle stream, Handle* graph) = nullptr;
  int (*instantiate)(Handle* exec, Handle graph, unsigned long long flags) = nullptr;
  int (*launch)(Handle exec, Handle stream) = nullptr;
  int (*destroy_exec)(Handle exec) = nullptr;
  int (*destroy)(Handle graph) = nullptr;
  int (*event_create)(Handle* event, unsigned flags) = nullptr;
  int (*event_record)(Handle event, Handle stream) = nullptr;
  int (*stream_wait_event)(Handle stream, Handle event, unsigned flags) = nullptr;

  Graphs() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      REQUIRE(function != nullptr);
    };
    find(begin_capture, "cuStreamBeginCapture_v2");
    find(end_capture, "cuStreamEndCapture");
    find(instantiate, "cuGraphInstantiateWithFlags");
    find(launch, "cuGraphLaunch");
    find(destroy_exec, "cuGraphExecDestroy");
    find(destroy, "cuGraphDestroy");
    find(event_create, "cuEventCreate");
    find(event_record, "cuEventRecord");
    find(stream_wait_event, "cuStreamWaitEvent");
  }

  /// Captures in the global mode, the strictest, what `work` puts into the stream; ready to launch.
  template <class Work>
  Handle captured(Handle stream, const Work& work) const {
    REQUIRE(begin_capture(stream, 0) == 0);
    work();
    Handle graph = nullptr;
    REQUIRE(end_capture(stream, &graph) == 0);  // nothing in `work` spoiled the capture
    Handle exec = nullptr;
    REQUIRE(instantiate(&exec, graph, 0) == 0);
    CHECK(destroy(graph) == 0);
    return exec;
  }
};

}  // namespace tessera::test
