#pragma once
// Names of variables in generated CUDA: those of the DSL, changed only where C++ or a clash forces
// it.

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::codegen::cuda {

/// One name per object and scope. A name is never used twice along one chain of enclosing scopes;
/// sibling scopes reuse names, so two loops may both count with `i`.
class Names {
 public:
  Names();

  /// Opens the scope of a `{`, or closes it and forgets its names.
  void enter();
  void leave();

  /// Leaves `name` to a function that the text calls. Before any name is declared.
  void reserve(const std::string& name);

  /// Names `object`, for as long as the current scope lives: `wanted`, made an identifier, with a
  /// suffix on a clash.
  const std::string& declare(const void* object, std::string_view wanted);
  /// A name for something that has no object, such as the counter of a loop that the emitter adds.
  std::string fresh(std::string_view wanted);

  /// Internal error if the object has no name here.
  const std::string& of(const void* object) const;

 private:
  struct Scope {
    std::set<std::string> taken;
    std::map<std::string, int> next;  // the suffixes below, of a name on a clash, are taken
    std::vector<const void*> objects;
  };
  bool is_taken(const std::string& name) const;

  std::vector<Scope> scopes_;
  std::map<const void*, std::string> names_;
};

}  // namespace tessera::codegen::cuda
