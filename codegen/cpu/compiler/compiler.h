#pragma once
// Compiles the thread IR to bytecode. Private to compile*.cpp.

#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "codegen/analysis/usage.h"
#include "codegen/cpu/compiler/bytecode.h"

namespace tessera::codegen::cpu {

class Compiler {
 public:
  Compiler(const Program& program, Checks checks);
  Bytecode compile();

 private:
  // ---- statements (compile.cpp)
  void compile_launch();
  void mark_ways();
  void compile_body(const Body& body);
  void compile_stmt(const Stmt& stmt);
  void stmt(const Let& let);
  void stmt(const For& loop);
  void stmt(const If& branch);
  void stmt(const Barrier& barrier);
  void stmt(const RoleBodies& bodies);
  void stmt(const Collective& collective);
  void stmt(const Comment&) {}
  void stmt(const Dependency&) {}  // kernels run sequentially

  // ---- arrays and registers (compile_arrays.cpp)
  void stmt(const Load& load);
  void stmt(const Store& store);
  void stmt(const Atomic& atomic);
  void wait_for_signal(const Atomic& atomic);
  void stmt(const Convert& convert);
  void stmt(const Packed& packed);
  void stmt(const CheckIndices& check);
  void stmt(const LoadMatrix& load);
  void stmt(const Mma& mma);
  void group_product(const Mma& mma);
  void stmt(const Commit& commit);
  void stmt(const Await& wait);
  void stmt(const Fence& fence) {
    if (fence.of != Fence::Of::registers) emit(Code::proxy_fence);
  }
  MatrixOperand matrix(const SharedMatrix& matrix);
  void stmt(const Declare& declare);
  void transfer(const Access& access, Transfer transfer);
  void lanewise(const Slice& into, const std::vector<Slice>& args, int width, ColumnOp op);
  SlotRange range(const Slice& slice);
  int storage(const ArrayRef& array);

  // ---- asynchronous copies (compile_async.cpp)
  void stmt(const AsyncCopy& copy);
  void stmt(const Break& leave);
  void stmt(const Return& leave);
  Transfer address(const Access& access, bool is_load);
  void add_base(Transfer& transfer);
  void stmt(const MbarrierInit& init);
  void stmt(const MbarrierArrive& arrive);
  void stmt(const MbarrierWait& wait);
  void stmt(const BulkCopy& copy);
  void stmt(const TensorCopy& copy);
  void stmt(const TensorStore& store);
  void stmt(const WriteMap& write);
  /// The instructions of `fn` for lane 0 of each warp.
  template <class Fn>
  void by_first_lane(const Fn& fn);
  BoxMove box(const TensorMapRef& map, const std::vector<Expr>& coordinates, const Access& shared,
              bool is_load);
  MbarrierStep mbarrier(const Access& at);
  void emit(Code code, MbarrierStep step);

  // ---- pointers and calls (compile_device_calls.cpp)
  void stmt(const Present& present);
  void stmt(const Assert& check);
  void stmt(const Print& print);
  void stmt(const ExternCall& call);
  void declare_pointer(const ArrayRef& array);
  void declare_view(const ArrayRef& array);

  // ---- expressions (compile_expressions.cpp)
  enum class Context : uint8_t { value, index };
  /// Compiles a uniform or varying evaluation, as the expression is.
  Slot eval(const Expr& e, Context context = Context::value);
  Slot eval_op(const ir::Node& node, const Expr& e, Context context);
  void check_overflow(const Expr& e, Slot out, const Slot* args, bool is_index);
  Slot eval_constant(const ir::Node& node);
  Slot eval_i64(const Expr& e);                    // index context
  Slot as_column(Slot slot);                       // broadcasts a uniform slot
  Slot bind(const ir::VarRef& var, bool uniform);  // a fresh slot for a variable, on the stack
  Slot find(const ir::VarRef& var) const;
  bool is_uniform(const Expr& e) const;

  // ---- instructions and slots
  Instr& emit(Code code, Slot out = {}, Slot a = {}, Slot b = {}, Slot c = {});
  int here() const { return static_cast<int>(code_->size()); }
  void land(int jump) { (*code_)[static_cast<size_t>(jump)].target = here(); }
  Slot allocate(DType type, bool uniform);
  Slot allocate_for_launch(DType type, bool uniform);
  /// An i64 column that the machine overwrites while it performs an instruction. It is not on the stack: products
  /// and tensor stores use it where they are awaited, far below the scope that started them.
  Slot scratch();
  int64_t column_bytes(DType type) const;
  void enter_mask();
  void leave_mask() { --mask_depth_; }

  const Program& program_;
  bool checked_;
  Bytecode out_;
  std::vector<Instr>* code_ = nullptr;
  int statement_ = 0;
  SourceLoc comment_loc_;
  int64_t top_ = 0;  // of the stack
  int mask_depth_ = 1;
  std::unordered_map<const ir::Var*, Slot> vars_;
  std::unordered_map<const Array*, int> arrays_;
  std::map<std::pair<DType, uint64_t>, int> constants_;  // into out_.initials
  std::unordered_map<int32_t, int> initial_at_;          // uniform slot offset -> out_.initials
  std::unordered_set<const ir::Var*> index_vars_;        // checked: variables used in an index
  std::optional<Usage> usage_;                           // checked: which values may wrap
  std::vector<int> leaves_;  // instructions that jump to the end of the block
  Slot scratch_;
  std::vector<int> breaks_;  // the same, of the loop around
};

}  // namespace tessera::codegen::cpu
