// Runs a kernel and ends: its own, or that of the plugin whose path it is given, which it unloads.

#include <dlfcn.h>

extern "C" int tessera_exit_plugin_run();

int main(int argc, char** argv) {
  if (argc < 2) return tessera_exit_plugin_run();
  void* plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!plugin) return 2;
  const auto run = reinterpret_cast<int (*)()>(dlsym(plugin, "tessera_exit_plugin_run"));
  const int status = run ? run() : 3;
  dlclose(plugin);
  return status;
}
