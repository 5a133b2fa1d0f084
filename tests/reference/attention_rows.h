#pragma once
// Requests, masks and parameters of the attention ops, for their references.

#include <cstdint>
#include <vector>

#include "kernels/call_types.h"
#include "tests/reference/attention.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct AttentionOptions {
  double scale, softcap;
  bool is_causal;
  int64_t left, right, split_len;
};
/// The parameters of a call with heads of `width`, with their defaults.
AttentionOptions attention_options(const kernels::Params& params, int64_t width);

/// Rows of q, k and v that belong together, and where lse of the first row and head stands.
struct AttentionRequest {
  int64_t q_row, k_row, q_length, k_length;
  int64_t rows;  // of the padding too, which sees no key
  int64_t lse, lse_of_head;
};
/// The requests of a dense or packed call; of a packed one, last, the rows behind all requests.
std::vector<AttentionRequest> attention_requests(const test::HostTensors& in);

/// The keys [begin, end) that row i of a request sees.
struct SeenKeys {
  int64_t begin, end;
};
SeenKeys keys_seen(const AttentionOptions& options, const AttentionRequest& r, int64_t i,
                   AttentionMistake mistake = AttentionMistake::none);

/// The value of a tensor of lengths, cut into 0 .. all, or `all` where there is none.
int64_t length_of(const test::HostTensors& in, const char* name, int64_t request, int64_t all);

/// The extent of a dimension, 1 for the last.
int64_t from_end(const test::HostTensor& t, int dims);

/// 2^x, rounded once; below 2^-126 +0.
float exp2_of(float x);

}  // namespace tessera::reference
