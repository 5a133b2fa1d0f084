// The list of all ops.

#include "kernels/registry/all_ops.h"

#include "dsl/base/first_use.h"
#include "kernels/op.h"
#include "kernels/op_call.h"
#include "kernels/signature/table.h"

namespace tessera::kernels {
namespace {

/// The rows of all ops, with a `run` that remembers calls it has checked.
const std::vector<OpInfo>* make_rows() {
  auto* rows = new std::vector<OpInfo>;
  for (const Op* op : all_ops()) {
    OpInfo row = op_info_of(*op);
    row.run = [raw = *parsed(*op).table](const Tensors& tensors, const Params& params,
                                         Stream stream) { call_op(raw, tensors, params, stream); };
    rows->push_back(std::move(row));
  }
  return rows;
}

FirstUse<const std::vector<const Op*>> g_all_ops;
FirstUse<const std::vector<OpInfo>> g_rows;

}  // namespace

const std::vector<const Op*>& all_ops() {
  return g_all_ops.get([] {
    auto* list = new std::vector<const Op*>;
#define OP(name) list->push_back(&name##_op)
#include "kernels/registry/op_list.h"
#undef OP
    return list;
  });
}

const std::vector<OpInfo>& ops() {
  return g_rows.get(make_rows);
}

const OpInfo& find_op(const std::string& name) {
  return find_op(ops(), name);
}

}  // namespace tessera::kernels
