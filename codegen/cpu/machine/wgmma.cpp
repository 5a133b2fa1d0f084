// Matrix instructions of four warps.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "codegen/cpu/arithmetic/product_sums.h"
#include "codegen/cpu/machine/machine.h"
#include "codegen/thread_ir/shared_matrix.h"

namespace tessera::codegen::cpu {
namespace {

constexpr int kGroup = 128;     // threads
constexpr int kWgmmaRows = 64;  // of a product

}  // namespace

void Machine::start_product(const Instr& instr) {
  const GroupProduct& product = code_.group_products[static_cast<size_t>(instr.index)];
  check_whole_block(instr, "a matrix product of four warps");
  if (code_.checked && !product.node.clears) check_sums(instr, product);
  const ThreadGroup& threads = cursor_->threads;
  for (int first = threads.first; first < threads.end(); first += kGroup) {
    StartedProduct started;
    started.instr = &instr;
    started.first = first;
    started.c = uniform<int64_t>(product.c.base);
    if (product.node.a.array) {
      started.a = uniform<int64_t>(product.a.base);
    } else {
      started.left = column<int64_t>(product.left.transfer.offset)[first];
    }
    started.right = column<int64_t>(product.right.transfer.offset)[first];
    products().started.push_back(started);
    if (code_.checked) set_operands_busy(started, true);
  }
  if (code_.checked) set_sums_there(products().started.back(), false);
}

/// Traps unless the accumulator has been written, or another product in flight writes it.
void Machine::check_sums(const Instr& instr, const GroupProduct& product) const {
  const auto first = uniform<int64_t>(product.c.base);
  const auto is_added_to = [&](const StartedProduct& other) {
    const auto index = static_cast<size_t>(other.instr->index);
    return code_.group_products[index].c.storage == product.c.storage && other.c == first;
  };
  const auto& under_way = products().started;
  if (std::any_of(under_way.begin(), under_way.end(), is_added_to)) return;
  for (const auto& group : products().groups) {
    if (std::any_of(group.begin(), group.end(), is_added_to)) return;
  }
  const Storage& sums = storage(product.c.storage);
  for (int64_t i = 0; i < product.node.columns() / 2; ++i) {
    check_initialised(instr, sums, first + i);
  }
}

void Machine::set_sums_there(const StartedProduct& started, bool there) {
  const GroupProduct& product = code_.group_products[static_cast<size_t>(started.instr->index)];
  const Storage& sums = storage(product.c.storage);
  for (int64_t i = 0; i < product.node.columns() / 2; ++i) {
    std::memset(initialised_column(sums, started.c + i) + cursor_->threads.first, there ? 1 : 0,
                static_cast<size_t>(cursor_->threads.count));
  }
}

void Machine::await_products(size_t pending) {
  auto& groups = products().groups;
  while (groups.size() > pending) {
    for (const StartedProduct& started : groups.front()) {
      const GroupProduct& product = code_.group_products[static_cast<size_t>(started.instr->index)];
      const Mma& node = product.node;
      product_sums_.with(launch_.arithmetic, node.left_dtype(), node.right_dtype(),
                         ir::Instruction::wgmma, kWgmmaRows, static_cast<int>(node.columns()),
                         static_cast<int>(node.right.depth()),
                         [&](auto& sums) { multiply_group(product, started, sums); });
      if (!code_.checked) continue;
      set_sums_there(started, true);
      set_operands_busy(started, false);
    }
    groups.pop_front();
  }
  if (!code_.checked) return;
  for (const auto& group : groups) {
    for (const StartedProduct& started : group) set_sums_there(started, false);
  }
  for (const Products& of_cursor : products_) {  // roles may read the same operands
    for (const auto& group : of_cursor.groups) {
      for (const StartedProduct& started : group) set_operands_busy(started, true);
    }
  }
}

void Machine::set_operands_busy(const StartedProduct& started, bool busy) {
  const GroupProduct& product = code_.group_products[static_cast<size_t>(started.instr->index)];
  busy_.resize(static_cast<size_t>(shadow_->bytes()));
  const auto mark = [&](const SharedMatrix& matrix, int64_t begin) {
    const Array& array = *matrix.first.array;
    for_each_chunk(matrix, begin, [&](const MatrixChunk& chunk) {
      const int64_t first = shared_start(array) + chunk.offset * bytes(array.dtype);
      for (int64_t byte = first; byte < first + 16; byte += shadow_->granule()) {
        busy_[static_cast<size_t>(byte)] = busy ? started.instr->statement : 0;
      }
    });
  };
  if (!product.node.a.array) mark(product.node.left, started.left);
  mark(product.node.right, started.right);
}

void Machine::check_not_busy(const Instr& instr, const Transfer& transfer, int lane,
                             int64_t byte) const {
  if (busy_.empty() || busy_[static_cast<size_t>(byte)] == 0) return;
  trap(instr, lane,
       {.code = "PRODUCT_BUSY",
        .what = fmt::format("{} is overwritten while a product that reads it runs on",
                            shared_element_name(transfer, lane, byte)),
        .argument = authors_name(*storage(transfer.storage).array),
        .expected = "a wait for the product before this access",
        .got = "none",
        .related = busy_[static_cast<size_t>(byte)]});
}

void Machine::read_matrix(
    const StartedProduct& started, const MatrixOperand& operand, const SharedMatrix& matrix,
    int64_t begin,
    const std::function<void(int64_t row, int64_t depth, const std::byte*, int count)>& fn) {
  const Array& array = *storage(operand.transfer.storage).array;
  const std::byte* base = shared_ + shared_start(array);
  const int element_bytes = bytes(array.dtype);
  int64_t* offsets = column<int64_t>(operand.chunk.offset);
  for_each_chunk(matrix, begin, [&](const MatrixChunk& chunk) {
    if (code_.checked) {
      // Two of the four reading warps are enough to conflict with every writer.
      for (const int lane : {started.first, started.first + kWarpSize}) {
        offsets[lane] = chunk.offset;
        check_shared(*started.instr, operand.chunk, lane, *this);
      }
      check_fenced(*started.instr, operand.chunk, started.first);
    }
    const std::byte* const elements = base + chunk.offset * element_bytes;
    if (!matrix.transposed) return fn(chunk.row, chunk.depth, elements, operand.chunk.width);
    for (int i = 0; i < operand.chunk.width; ++i) {
      fn(chunk.row + i, chunk.depth, elements + i * element_bytes, 1);
    }
  });
}

template <class Sums>
void Machine::multiply_group(const GroupProduct& product, const StartedProduct& started,
                             Sums& sums) {
  const Mma& node = product.node;
  sums.clear();
  if (node.a.array) {
    const Storage& left = storage(product.a.storage);
    const int size = bytes(left.array->dtype), per_register = 4 / size;
    for (int element = 0; element < 4 * per_register; ++element) {
      const std::byte* registers = register_column(*started.instr, left, started.a + element);
      if (code_.checked) check_initialised(*started.instr, left, started.a + element);
      const int reg = element / per_register;
      for (int thread = 0; thread < kGroup; thread += 4) {
        const int lane = thread % kWarpSize;
        const int row = thread / kWarpSize * 16 + lane / 4 + reg % 2 * 8;
        const int k = reg / 2 * 4 * per_register + element % per_register;
        sums.set_left(row, k, registers + (started.first + thread) * size, 4, per_register);
      }
    }
  } else {
    read_matrix(started, product.left, node.left, started.left,
                [&](int64_t row, int64_t k, const std::byte* from, int count) {
                  sums.set_left(static_cast<int>(row), static_cast<int>(k), from, count);
                });
  }
  read_matrix(started, product.right, node.right, started.right,
              [&](int64_t column, int64_t k, const std::byte* from, int count) {
                sums.set_right(static_cast<int>(column), static_cast<int>(k), from, count);
              });
  const Storage& sum = storage(product.c.storage);
  const auto columns = static_cast<size_t>(node.columns());
  std::vector<std::byte*> slots(columns / 2);
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    slots[slot] = register_column(*started.instr, sum, started.c + static_cast<int64_t>(slot)) +
                  started.first * 4;
    if (node.clears) std::memset(slots[slot], 0, kGroup * 4);
  }
  for (int row = 0; row < kWgmmaRows; ++row) {
    const int thread = row / 16 * kWarpSize + row % 8 * 4;
    for (size_t block = 0; block < columns / kColumnsTogether; ++block) {
      const size_t slot = block * 4 + static_cast<size_t>(row / 8 % 2 * 2);
      const auto at = [&](size_t of) {
        return reinterpret_cast<uint32_t*>(slots[of] + thread * 4);
      };
      sums.add(row, static_cast<int>(block), at(slot), at(slot + 1));
    }
  }
}

void Machine::check_fenced(const Instr& instr, const Transfer& transfer, int lane) const {
  const Array& array = *storage(transfer.storage).array;
  const int64_t begin =
      shared_start(array) + offset_in_owner(transfer, lane) * bits(array.dtype) / 8;
  for (int64_t byte = begin; byte < begin + 16; byte += shadow_->granule()) {
    const GenericStore* const store = unfenced(*this, byte, lane);
    if (store == nullptr) continue;
    trap(
        instr, lane,
        {.code = "PROXY",
         .what = fmt::format("{} is read by the tensor cores, and {} has written it with no "
                             "proxy fence after it",
                             shared_element_name(transfer, lane, byte), thread_name(store->thread)),
         .argument = authors_name(array),
         .expected = "a proxy fence of the writing thread, then a barrier",
         .got = "none",
         .related = store->statement});
  }
}

}  // namespace tessera::codegen::cpu
