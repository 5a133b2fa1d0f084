#pragma once
// Prints the statements of one program as the body of a CUDA kernel.

#include <map>
#include <set>
#include <string>

#include "codegen/analysis/usage.h"
#include "codegen/cuda/expression.h"
#include "codegen/cuda/names.h"
#include "codegen/cuda/source_text.h"
#include "codegen/thread_ir.h"
#include "dsl/base/kernel_source.h"

namespace tessera::codegen::cuda {

class Emitter {
 public:
  explicit Emitter(const Program& program);

  /// The kernel, from its signature to its closing brace.
  const std::string& text() const { return out_.str(); }
  /// The device functions and types it names.
  const std::set<std::string, std::less<>>& called() const { return expressions_.called(); }
  /// The text of the author's own device functions that it calls, each once.
  const std::string& extern_text() const { return extern_text_; }
  /// The text of the device functions for products of four warps that it calls, each once.
  const std::string& matrix_functions() const { return matrix_text_; }
  /// True if it calls functions that the author named, his own or CUDA's.
  bool calls_author_text() const { return calls_author_text_; }
  /// Where the author wrote what a line of text() came from.
  const std::vector<LineOrigin>& origins() const { return origins_; }
  /// True if the kernel waits for the one before it in the stream.
  bool waits_for_previous() const { return usage_.waits_for_previous(); }

 private:
  void signature();
  void indices();
  void shared_arrays();
  void body(const Body& body);

  void print(const Let& let);
  void print(const Load& load);
  void print(const Store& store);
  void print(const Atomic& atomic);
  void print(const Convert& convert);
  void print(const Packed& packed);
  void print(const LoadMatrix& load);
  void print(const Mma& mma);
  // emitter_wgmma.cpp
  void print_group(const Mma& mma);
  void commit_products();
  void await_products(const Await& wait);
  void fence_products(const Fence& fence);
  void print(const Commit& commit);  // emitter_waits.cpp, as the next two
  void print(const Await& wait);
  void print(const Fence& fence);
  void print(const For& loop);
  void print(const If& branch);
  // emitter_async.cpp
  void print(const AsyncCopy& copy);
  void print(const Break& leave);
  void print(const Return& leave);
  void print(const MbarrierInit& init);
  void print(const MbarrierArrive& arrive);
  void print(const MbarrierWait& wait);
  void print(const BulkCopy& copy);
  void print(const TensorCopy& copy);
  void print(const TensorStore& store);
  void print(const WriteMap& write);
  std::string map_address(const TensorCopy& copy);
  std::string box_arguments(std::string map, const std::vector<Expr>& coordinates);
  std::string copy_address(const Access& access);
  std::string mbarrier(const Access& at);

  void print(const Barrier& barrier);
  void print(const RoleBodies& bodies);
  void print(const Collective& collective);
  void print(const Comment& comment);
  void print(const Declare& declare);
  void print(const Present& present);
  void print(const Assert& check);
  void print(const CheckIndices&) {}  // of the executor
  void print(const Print& print);
  void print(const Dependency& dependency);
  void print(const ExternCall& call);

  std::string descriptor(const SharedMatrix& matrix);
  bool depends_on_thread(const Expr& e) const;
  Expr of_warp(const Expr& e) const;
  void bind_first_of_warp(const VarRef& thread, const Body& body);
  std::string atomic_call(const Atomic& atomic);
  void wait(const Atomic& atomic);  // for a signal
  /// The conversion of Convert::at_once elements, the first number `step`; empty: of all.
  std::string conversion(const Convert& convert, const std::string& step);
  std::string collective_call(const Collective& collective);
  /// "const float name = text;"
  void bind(const VarRef& var, const std::string& text);
  /// The type of an element in memory, where two e2m1 share a byte.
  std::string memory_type(DType dtype);

  const Program& program_;
  Usage usage_;
  Names names_;
  ExpressionPrinter expressions_{usage_, names_};
  SourceText out_;
  SourceLoc loc_;  // of the statement being printed
  std::vector<LineOrigin> origins_;
  std::set<std::string> extern_names_;
  std::string extern_text_;
  std::set<std::string> matrix_names_;
  std::string matrix_text_;
  std::map<std::string, std::string> matrices_;  // names by text: descriptors of the product
  VarRef thread_, first_of_warp_;                // of the role, or of the block
  std::string grid_barrier_;                     // name of the parameter
  std::string next_mark_;                        // the place of the warp's next mark
  bool calls_author_text_ = false;
  bool prefetches_maps_ = false;
};

}  // namespace tessera::codegen::cuda
