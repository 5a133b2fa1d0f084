#include "tests/fuzz/tile_interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <string>

#include "tests/fuzz/scalar.h"

namespace tessera::test {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::logic_error("tile interpreter: " + what);
}

/// A tile, or an array that one thread owns.
struct Storage {
  std::vector<Scalar> elements;
  std::vector<bool> written;
};

struct Thread {
  std::vector<Scalar> vars;  // by Var::id
  std::map<int, Storage> own;
};

using Threads = std::vector<Thread*>;

/// A few indices or extents, in place: there is one per element that anything touches.
class Index {
 public:
  Index() = default;
  Index(std::initializer_list<int64_t> values) {
    for (const int64_t value : values) push_back(value);
  }
  static Index zeros(size_t size) {
    Index result;
    result.size_ = size;
    return result;
  }
  size_t size() const { return size_; }
  int64_t& operator[](size_t d) { return values_[d]; }
  int64_t operator[](size_t d) const { return values_[d]; }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + size_; }
  void push_back(int64_t value) {
    if (size_ == values_.size()) fail("more dimensions than it knows");
    values_[size_++] = value;
  }
  Index with(size_t d, int64_t value) const {  // one dimension more
    Index result;
    for (size_t i = 0; i < d; ++i) result.push_back(values_[i]);
    result.push_back(value);
    for (size_t i = d; i < size_; ++i) result.push_back(values_[i]);
    return result;
  }
  Index without(size_t d) const {
    Index result;
    for (size_t i = 0; i < size_; ++i) {
      if (i != d) result.push_back(values_[i]);
    }
    return result;
  }

 private:
  std::array<int64_t, 6> values_{};
  size_t size_ = 0;
};

int storage_id(const ir::Buffer& buffer) {
  return buffer.alias_of ? storage_id(*buffer.alias_of) : buffer.id;
}

template <class Body>
void for_each_index(const Index& extents, const Body& body) {
  Index at = Index::zeros(extents.size());
  if (std::find(extents.begin(), extents.end(), 0) != extents.end()) return;
  while (true) {
    body(at);
    size_t d = extents.size();
    while (d > 0 && ++at[d - 1] == extents[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

class Interpreter {
 public:
  Interpreter(const ir::Kernel& kernel, const std::vector<HostTensor*>& tensors) : kernel_(kernel) {
    if (kernel.tensors.size() != tensors.size()) fail("number of tensors");
    host_.vars.resize(static_cast<size_t>(kernel.num_vars));
    for (size_t t = 0; t < tensors.size(); ++t) {
      const ir::Buffer& buffer = *kernel.tensors[t];
      globals_[buffer.id] = tensors[t];
      for (size_t d = 0; d < buffer.shape.size(); ++d) {
        bind(buffer.shape[d], tensors[t]->shape()[static_cast<int>(d)]);
        bind(buffer.strides[d], tensors[t]->strides()[static_cast<int>(d)]);
      }
    }
  }

  void run() {
    Index grid;
    for (const ir::Expr& extent : kernel_.grid) grid.push_back(evaluate(extent, host_).integer);
    while (grid.size() < 3) grid.push_back(1);
    for_each_index({grid[2], grid[1], grid[0]}, [&](const Index& at) {
      run_block({at[2], at[1], at[0]});
    });
  }

 private:
  void bind(const ir::Expr& place, int64_t value) {
    if (place->op == ir::Op::var) set(host_, place->var, {value, 0});
  }

  void run_block(const Index& block) {
    tiles_.assign(static_cast<size_t>(kernel_.num_buffers), {});
    std::vector<Thread> threads(static_cast<size_t>(kernel_.threads), host_);
    Threads all;
    for (size_t t = 0; t < threads.size(); ++t) {
      set(threads[t], kernel_.thread, {static_cast<int64_t>(t), 0});
      for (const ir::VarRef& var : kernel_.blocks) {
        set(threads[t], var, {block[static_cast<size_t>(var->axis)], 0});
      }
      all.push_back(&threads[t]);
    }
    run(kernel_.body, all);
  }

  void run(const ir::Body& body, const Threads& threads) {
    for (const ir::Stmt& stmt : body) {
      std::visit([&](const auto& node) { run_node(node, threads); }, stmt.node);
    }
  }

  // ---- statements of every thread
  void run_node(const ir::Let& node, const Threads& threads) {
    for (Thread* thread : threads) set(*thread, node.var, evaluate(node.value, *thread));
  }
  void run_node(const ir::ElementLoad& node, const Threads& threads) {
    for (Thread* thread : threads) {
      set(*thread, node.var, read(*node.buffer, indices(node.indices, *thread), *thread));
    }
  }
  void run_node(const ir::ElementStore& node, const Threads& threads) {
    for (Thread* thread : threads) {
      write(*node.buffer, indices(node.indices, *thread), evaluate(node.value, *thread), *thread);
    }
  }
  void run_node(const ir::If& node, const Threads& threads) {
    Threads then, otherwise;
    for (Thread* thread : threads) {
      (evaluate(node.condition, *thread).integer != 0 ? then : otherwise).push_back(thread);
    }
    if (!then.empty()) run(node.then, then);
    if (!otherwise.empty()) run(node.otherwise, otherwise);
  }
  void run_node(const ir::Loop& node, const Threads& threads) {
    if (node.kind == ir::LoopKind::parallel) {
      Index extents;
      for (const ir::Expr& extent : node.extents)
        extents.push_back(evaluate(extent, *threads[0]).integer);
      for_each_index(extents, [&](const Index& at) {
        for (size_t d = 0; d < at.size(); ++d) set(*threads[0], node.vars[d], {at[d], 0});
        run(node.body, {threads[0]});
      });
      return;
    }
    // Bounds may differ between threads: those that are done wait for the others.
    std::map<Thread*, int64_t> next, end, step;
    for (Thread* thread : threads) {
      next[thread] = node.begin ? evaluate(node.begin, *thread).integer : 0;
      end[thread] = evaluate(node.extents[0], *thread).integer;
      step[thread] = node.step ? evaluate(node.step, *thread).integer : 1;
    }
    for (;;) {
      Threads active;
      for (Thread* thread : threads) {
        if (next[thread] >= end[thread]) continue;
        set(*thread, node.vars[0], {next[thread], 0});
        next[thread] += step[thread];
        active.push_back(thread);
      }
      if (active.empty()) return;
      left_.clear();
      run(node.body, active);
      for (Thread* thread : left_) next[thread] = end[thread];
      left_.clear();
    }
  }
  void run_node(const ir::Break& node, const Threads& threads) {
    for (Thread* thread : threads) {
      if (evaluate(node.condition, *thread).integer != 0) left_.push_back(thread);
    }
  }
  void run_node(const ir::Collective& node, const Threads& threads) {
    if (threads.size() % 32 != 0) fail("a collective of part of a warp");
    for (size_t warp = 0; warp < threads.size(); warp += 32) {
      std::vector<Scalar> values;
      for (size_t lane = 0; lane < 32; ++lane) {
        values.push_back(evaluate(node.args[0], *threads[warp + lane]));
      }
      for (size_t lane = 0; lane < 32; ++lane) {
        set(*threads[warp + lane], node.var, collective(node, values, lane, *threads[warp + lane]));
      }
    }
  }
  void run_node(const ir::Sync&, const Threads&) {}
  void run_node(const ir::Assume& node, const Threads& threads) {
    for (Thread* thread : threads) {
      if (evaluate(node.condition, *thread).integer == 0) fail("an assumption does not hold");
    }
  }

  void run_node(const ir::Atomic& node, const Threads& threads) {
    if (node.old && !node.until) fail("an atomic that gives the old value");
    for (Thread* thread : threads) {
      const Index at = indices(node.indices, *thread);
      const DType type = node.buffer->dtype;
      if (node.until) {  // blocks run in their order
        set(*thread, node.old, read(*node.buffer, at, *thread));
        if (evaluate(node.until, *thread).integer == 0) fail("a wait for a later block");
        continue;
      }
      if (node.op == ir::AtomicOp::exchange) {
        write(*node.buffer, at, evaluate(node.value, *thread), *thread);
        continue;
      }
      const Scalar pair[] = {read(*node.buffer, at, *thread), evaluate(node.value, *thread)};
      const ir::Op op = node.op == ir::AtomicOp::add   ? ir::Op::add
                        : node.op == ir::AtomicOp::max ? ir::Op::max
                        : node.op == ir::AtomicOp::min ? ir::Op::min
                                                       : ir::Op::constant;
      write(*node.buffer, at, apply(op, type, type, pair), *thread);
    }
  }

  // ---- statements of the block
  void run_node(const ir::ReducerInit& node, const Threads& threads) {
    storage_of(*node.reducer, *threads[0]) = {};  // no contribution yet
  }
  void run_node(const ir::ReducerUpdate& node, const Threads& threads) {
    for (Thread* thread : threads) {
      const Index at = indices(node.indices, *thread);
      write(*node.reducer, at,
            contributed(node.op, *node.reducer, at, evaluate(node.value, *thread), *thread),
            *thread);
    }
  }
  void run_node(const ir::ReducerFinalize& node, const Threads& threads) {
    Thread& thread = *threads[0];
    if (!node.to) fail("a reducer that closes into a value");
    Index extents;
    for (const ir::Expr& extent : node.to->shape) extents.push_back(extent->integer);
    for_each_index(extents, [&](const Index& at) {
      const Scalar result =
          node.start ? contributed(node.op, *node.reducer, at, evaluate(node.start, thread), thread)
                     : read(*node.reducer, at, thread);
      write(*node.to, at, result, thread);
    });
  }
  /// The value of an element of a reducer after one more contribution.
  Scalar contributed(ir::ReduceOp op, const ir::Buffer& reducer, const Index& at, Scalar value,
                     Thread& thread) {
    if (!storage_of(reducer, thread).written[element_of(reducer, at)]) return value;
    const Scalar pair[] = {read(reducer, at, thread), value};
    return apply(reduction(op), reducer.dtype, reducer.dtype, pair);
  }

  void run_node(const ir::Copy& node, const Threads& threads) {
    Thread& thread = *threads[0];
    std::vector<Scalar> values;
    const DType from = node.from.buffer->dtype;
    const DType to = node.to.buffer->dtype;
    for_each_index(extents_of(node.from, thread), [&](const Index& at) {
      const Index source = place(node.from, at, thread);
      if (node.outside && is_outside(*node.from.buffer, source)) {
        values.push_back(evaluate(node.outside, thread));
      } else {
        values.push_back(converted(to, from, read(*node.from.buffer, source, thread)));
      }
    });
    size_t next = 0;
    for_each_index(extents_of(node.to, thread), [&](const Index& at) {
      const Index target = place(node.to, at, thread);
      Scalar value = values.at(next++);
      if (node.adds) {
        const Scalar pair[] = {read(*node.to.buffer, target, thread), value};
        value = apply(ir::Op::add, to, to, pair);
      }
      write(*node.to.buffer, target, value, thread);
    });
    if (next != values.size()) fail("a copy between different shapes");
  }
  void run_node(const ir::StoreWait&, const Threads&) {}
  void run_node(const ir::Gemm& node, const Threads& threads) {
    Thread& thread = *threads[0];
    const Index extents = extents_of(node.a, thread);
    const DType type = node.c.buffer->dtype;
    const auto factor = [&](const ir::Region& region, const Index& at) {
      const ir::Buffer& buffer = *region.buffer;
      return converted(type, buffer.dtype, read(buffer, place(region, at, thread), thread));
    };
    for_each_index(extents_of(node.c, thread), [&](const Index& at) {
      const Index to = place(node.c, at, thread);
      Scalar sum = read(*node.c.buffer, to, thread);
      for (int64_t d = 0; d < extents[1]; ++d) {
        const Scalar pair[] = {factor(node.a, {at[0], d}), factor(node.b, {d, at[1]})};
        const Scalar terms[] = {sum, apply(ir::Op::mul, type, type, pair)};
        sum = apply(ir::Op::add, type, type, terms);
      }
      write(*node.c.buffer, to, sum, thread);
    });
  }
  void run_node(const ir::Fill& node, const Threads& threads) {
    for_each_index(extents_of(node.to, *threads[0]), [&](const Index& at) {
      write(*node.to.buffer, place(node.to, at, *threads[0]), evaluate(node.value, *threads[0]),
            *threads[0]);
    });
  }
  void run_node(const ir::Reduce& node, const Threads& threads) {
    Thread& thread = *threads[0];
    const DType from = node.from.buffer->dtype;
    const DType to = node.to.buffer->dtype;
    const auto axis = static_cast<size_t>(node.axis);
    const Index extents = extents_of(node.from, thread);
    const int64_t length = extents[axis];
    const bool keeps_axis = extents_of(node.to, thread).size() == extents.size();
    for_each_index(extents.without(axis), [&](const Index& at) {
      Index inner = at.with(axis, 0);
      Scalar result;
      for (int64_t i = 0; i < length; ++i) {
        inner[axis] = i;
        Scalar value =
            converted(to, from, read(*node.from.buffer, place(node.from, inner, thread), thread));
        if (node.op == ir::ReduceOp::absmax) value = apply(ir::Op::abs, to, to, &value);
        const Scalar pair[] = {result, value};  // a sum begins with +0
        const bool begins = i == 0 && node.op != ir::ReduceOp::sum;
        result = begins ? value : apply(reduction(node.op), to, to, pair);
      }
      write(*node.to.buffer, place(node.to, keeps_axis ? at.with(axis, 0) : at, thread), result,
            thread);
    });
  }
  template <class Node>
  void run_node(const Node&, const Threads&) {
    fail("a statement that it does not know");
  }

  // ---- values
  Scalar evaluate(const ir::Expr& e, const Thread& thread) const {
    if (e->op == ir::Op::constant) return {e->integer, e->number};
    if (e->op == ir::Op::var) return thread.vars[static_cast<size_t>(e->var->id)];
    Scalar arguments[3];
    if (e->args.size() > 3) fail("an operation with more than three arguments");
    for (size_t i = 0; i < e->args.size(); ++i) arguments[i] = evaluate(e->args[i], thread);
    return apply(e->op, e->args[0]->type, e->type, arguments);
  }

  Scalar collective(const ir::Collective& node, const std::vector<Scalar>& values, size_t lane,
                    const Thread& thread) const {
    const DType type = node.args[0]->type;
    const auto width = static_cast<size_t>(node.width);
    const auto argument = [&] {
      return static_cast<size_t>(evaluate(node.args[1], thread).integer);
    };
    const size_t first = lane / width * width;
    switch (node.kind) {
      case ir::CollectiveKind::shuffle:
        return values[first + argument() % width];
      case ir::CollectiveKind::shuffle_xor:
        return values[(lane ^ argument()) < first + width ? lane ^ argument() : lane];
      case ir::CollectiveKind::shuffle_up:
        return values[lane >= first + argument() ? lane - argument() : lane];
      case ir::CollectiveKind::reduce_add:
      case ir::CollectiveKind::reduce_min:
      case ir::CollectiveKind::reduce_max: {
        const ir::Op op = node.kind == ir::CollectiveKind::reduce_add   ? ir::Op::add
                          : node.kind == ir::CollectiveKind::reduce_min ? ir::Op::min
                                                                        : ir::Op::max;
        Scalar result = values[0];
        for (size_t i = 1; i < 32; ++i) {
          const Scalar pair[] = {result, values[i]};
          result = apply(op, type, type, pair);
        }
        return result;
      }
      default:
        fail("collective " + std::string(ir::name(node.kind)));
    }
  }

  static ir::Op reduction(ir::ReduceOp op) {
    if (op == ir::ReduceOp::sum) return ir::Op::add;
    return op == ir::ReduceOp::min ? ir::Op::min : ir::Op::max;
  }

  // ---- places
  Index indices(const std::vector<ir::Expr>& expressions, const Thread& thread) const {
    Index result;
    for (const ir::Expr& e : expressions) result.push_back(evaluate(e, thread).integer);
    return result;
  }
  Index extents_of(const ir::Region& region, const Thread& thread) const {
    Index result;
    for (const int d : region.order) {
      result.push_back(evaluate(region.extents[static_cast<size_t>(d)], thread).integer);
    }
    return result;
  }
  Index place(const ir::Region& region, const Index& at, const Thread& thread) const {
    Index result = indices(region.offsets, thread);
    for (size_t i = 0; i < at.size(); ++i) result[static_cast<size_t>(region.order[i])] += at[i];
    return result;
  }

  bool is_outside(const ir::Buffer& global, const Index& at) const {
    return element_of(globals_.at(global.id)->shape(), at) < 0;
  }

  Scalar read(const ir::Buffer& buffer, const Index& at, Thread& thread) {
    if (buffer.space == ir::Space::global) {
      const int64_t element = element_of(globals_.at(buffer.id)->shape(), at);
      return element < 0 ? Scalar{}
                         : scalar_of_bits(buffer.dtype, globals_.at(buffer.id)->bits(element));
    }
    Storage& storage = storage_of(buffer, thread);
    const size_t element = element_of(buffer, at);
    if (!storage.written[element]) fail(buffer.name + " is read before it is written");
    return storage.elements[element];
  }

  void write(const ir::Buffer& buffer, const Index& at, Scalar value, Thread& thread) {
    if (buffer.space == ir::Space::global) {
      HostTensor& tensor = *globals_.at(buffer.id);
      const int64_t element = element_of(tensor.shape(), at);
      if (element >= 0) tensor.set_bits(element, bits_of_scalar(buffer.dtype, value));
      return;
    }
    Storage& storage = storage_of(buffer, thread);
    const size_t element = element_of(buffer, at);
    storage.elements[element] = normalised(buffer.dtype, value);
    storage.written[element] = true;
  }

  Storage& storage_of(const ir::Buffer& buffer, Thread& thread) {
    const bool is_own = buffer.space == ir::Space::local || buffer.space == ir::Space::scalar;
    const int id = storage_id(buffer);
    Storage& storage = is_own ? thread.own[id] : tiles_[static_cast<size_t>(id)];
    if (storage.elements.empty()) {
      int64_t size = 1;
      for (const ir::Expr& extent : buffer.shape) size *= extent->integer;
      storage.elements.resize(static_cast<size_t>(size));
      storage.written.resize(static_cast<size_t>(size));
    }
    return storage;
  }

  /// Row-major number of an element; -1 outside.
  template <class Extents>
  static int64_t number_of(const Extents& extents, const Index& at) {
    int64_t number = 0;
    for (size_t d = 0; d < at.size(); ++d) {
      const int64_t extent = extents(d);
      if (at[d] < 0 || at[d] >= extent) return -1;
      number = number * extent + at[d];
    }
    return number;
  }
  static int64_t element_of(const Dims& shape, const Index& at) {
    return number_of([&](size_t d) { return shape[static_cast<int>(d)]; }, at);
  }
  static size_t element_of(const ir::Buffer& buffer, const Index& at) {
    const int64_t number = number_of([&](size_t d) { return buffer.shape[d]->integer; }, at);
    if (number < 0) fail("an index outside " + buffer.name);
    return static_cast<size_t>(number);
  }

  static void set(Thread& thread, const ir::VarRef& var, Scalar value) {
    if (var) thread.vars[static_cast<size_t>(var->id)] = value;
  }

  const ir::Kernel& kernel_;
  std::map<int, HostTensor*> globals_;
  std::vector<Storage> tiles_;  // of the block that runs, by Buffer::id
  Thread host_;                 // dims and scalars
  Threads left_;                // the loop whose round ends
};

}  // namespace

void interpret(const ir::Kernel& kernel, const std::vector<HostTensor*>& tensors) {
  Interpreter(kernel, tensors).run();
}

}  // namespace tessera::test
