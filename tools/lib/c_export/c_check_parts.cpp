// The parts that check arguments, without the driver.

#include "tools/lib/c_export/c_parts.h"

namespace tessera::tools {
namespace {

constexpr CPart kParts[] = {
    {"ts_fail", R"text(
/* Writes the text of an error where one is wanted, and returns its code. */
static int ts_fail(tessera_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int ts_fail(tessera_error *error, int code, const char *format, ...) {
  va_list values;
  if (!error) return code;
  error->code = code;
  va_start(values, format);
  (void)vsnprintf(error->text, sizeof error->text, format, values);
  va_end(values);
  return code;
}
)text"},
    // ---- arithmetic of extents: `bad` becomes 1 where a result does not exist
    {"ts_add", R"text(
static int64_t ts_add(int64_t a, int64_t b, int *bad) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) *bad = 1;
  return *bad ? 0 : result;
}
)text"},
    {"ts_sub", R"text(
static int64_t ts_sub(int64_t a, int64_t b, int *bad) {
  int64_t result = 0;
  if (__builtin_sub_overflow(a, b, &result)) *bad = 1;
  return *bad ? 0 : result;
}
)text"},
    {"ts_mul", R"text(
static int64_t ts_mul(int64_t a, int64_t b, int *bad) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) *bad = 1;
  return *bad ? 0 : result;
}
)text"},
    {"ts_div", R"text(
static int64_t ts_div(int64_t a, int64_t b, int *bad) {
  if (b == 0 || (b == -1 && a == INT64_MIN)) *bad = 1;
  return *bad ? 0 : a / b;
}
)text"},
    {"ts_mod", R"text(
static int64_t ts_mod(int64_t a, int64_t b, int *bad) {
  if (b == 0) *bad = 1;
  return *bad || b == -1 ? 0 : a % b;
}
)text"},
    {"ts_min", R"text(
static int64_t ts_min(int64_t a, int64_t b) { return a < b ? a : b; }
)text"},
    {"ts_max", R"text(
static int64_t ts_max(int64_t a, int64_t b) { return a > b ? a : b; }
)text"},
    {"ts_within", R"text(
static int64_t ts_within(int64_t value, int64_t least, int64_t most, int *bad) {
  if (value < least || value > most) *bad = 1;
  return value;
}
)text"},
    // ---- tensors
    {"ts_fact", R"text(
/* What an argument must be. */
typedef struct ts_fact {
  const char *name, *declared;
  int rank, bits, is_optional, is_output, may_alias;
  int64_t align; /* bytes */
} ts_fact;

/* A tensor of a call, with strides filled in. */
typedef struct ts_view {
  tessera_tensor tensor;
  int is_given;
  int64_t size;  /* elements */
  int64_t bytes; /* from the first to the last */
} ts_view;
)text"},
    {"ts_take", R"text(
static int ts_take(const ts_fact *fact, const tessera_tensor *given, ts_view *view,
                   tessera_error *error) {
  int d, bad = 0, has_strides = 0;
  int64_t last = 0;
  memset(view, 0, sizeof *view);
  if (!given) {
    if (fact->is_optional) return TESSERA_OK;
    return ts_fail(error, TESSERA_ARGUMENT,
                   "tessera: " TS_OP ": argument '%s' is missing\n"
                   "  expected  %s\n  got       a null pointer",
                   fact->name, fact->declared);
  }
  if (given->rank != fact->rank) {
    return ts_fail(error, TESSERA_ARGUMENT,
                   "tessera: " TS_OP ": argument '%s' has the wrong rank\n"
                   "  expected  %s, rank %d\n  got       rank %d",
                   fact->name, fact->declared, fact->rank, given->rank);
  }
  view->tensor = *given;
  view->is_given = 1;
  view->size = 1;
  for (d = 0; d < fact->rank; ++d) has_strides = has_strides || given->strides[d] != 0;
  for (d = fact->rank - 1; d >= 0; --d) {
    const int64_t extent = given->shape[d];
    if (!has_strides) view->tensor.strides[d] = view->size;
    if (extent < 0 || view->tensor.strides[d] < 0) {
      return ts_fail(error, TESSERA_ARGUMENT,
                     "tessera: " TS_OP ": argument '%s' is no possible view\n"
                     "  expected  an extent and a stride from 0 on in dimension %d\n"
                     "  got       extent %lld, stride %lld",
                     fact->name, d, (long long)extent, (long long)view->tensor.strides[d]);
    }
    view->size = ts_mul(view->size, extent, &bad);
    last = ts_add(last, ts_mul(extent - 1, view->tensor.strides[d], &bad), &bad);
  }
  if (view->size == 0 && !bad) return TESSERA_OK;
  view->bytes = (ts_mul(ts_add(last, 1, &bad), fact->bits, &bad) + 7) / 8;
  if (bad || view->bytes > ((int64_t)1 << 62)) {
    return ts_fail(error, TESSERA_ARGUMENT,
                   "tessera: " TS_OP ": argument '%s' is too large\n"
                   "  expected  at most 2^62 bytes\n  got       more",
                   fact->name);
  }
  if (!given->data) {
    return ts_fail(error, TESSERA_ARGUMENT,
                   "tessera: " TS_OP ": argument '%s' has no data\n"
                   "  expected  %s\n  got       a null pointer",
                   fact->name, fact->declared);
  }
  if ((uintptr_t)given->data % (uintptr_t)fact->align != 0) {
    return ts_fail(error, TESSERA_ARGUMENT,
                   "tessera: " TS_OP ": argument '%s' is not aligned\n"
                   "  expected  an address that is a multiple of %lld bytes\n  got       0x%llx",
                   fact->name, (long long)fact->align,
                   (unsigned long long)(uintptr_t)given->data);
  }
  return TESSERA_OK;
}
)text"},
    {"ts_place", R"text(
/* An extent or a stride of an argument. */
typedef struct ts_place {
  int tensor, dim, is_stride;
} ts_place;

static int64_t ts_at(const ts_view *views, ts_place place) {
  const tessera_tensor *tensor = &views[place.tensor].tensor;
  return place.is_stride ? tensor->strides[place.dim] : tensor->shape[place.dim];
}

/* A stride of one element, or of a tensor without elements, multiplies nothing. */
static int ts_matters(const ts_view *views, ts_place place) {
  const ts_view *view = &views[place.tensor];
  return !place.is_stride || (view->tensor.shape[place.dim] != 1 && view->size > 0);
}
)text"},
    {"ts_bind", R"text(
/* The value of a dim: that of the first place that matters; without one any with the declared multiple. */
static int ts_bind(const char *dim, const ts_place *places, int num_places, int64_t multiple, int64_t most,
                   const ts_view *views, int64_t *value, const ts_place **source,
                   tessera_error *error) {
  int i, found_idle = 0;
  *value = multiple;
  *source = NULL;
  for (i = 0; i < num_places; ++i) {
    const int64_t given = ts_at(views, places[i]);
    if (!views[places[i].tensor].is_given) continue;
    if (ts_matters(views, places[i])) {
      if (given > most) {
        return ts_fail(error, TESSERA_ARGUMENT,
                       "tessera: " TS_OP ": argument '%s' has an extent or stride out of range\n"
                       "  expected  %s at most %lld\n  got       %lld",
                       ts_facts[places[i].tensor].name, dim, (long long)most, (long long)given);
      }
      *value = given;
      *source = &places[i];
      return TESSERA_OK;
    }
    if (!found_idle && given > 0 && given <= most) {
      found_idle = 1;
      *value = given - given % multiple > multiple ? given - given % multiple : multiple;
    }
  }
  return TESSERA_OK;
}
)text"},
    {"ts_expect", R"text(
/* An extent or a stride must have the value that the others give it. C may read arguments in any order: bad, which computing
   `expected` sets, is read here. */
static int ts_expect(const ts_view *views, int tensor, int dim, int is_stride, int64_t expected,
                     int *bad, int64_t most, const char *formula, tessera_error *error) {
  const ts_place place = {tensor, dim, is_stride};
  if (!views[tensor].is_given || !ts_matters(views, place)) {
    *bad = 0; /* nobody needs `expected` */
    return TESSERA_OK;
  }
  if (*bad || expected > most) {
    return ts_fail(error, TESSERA_ARGUMENT,
                   "tessera: " TS_OP ": argument '%s' has an extent out of range\n"
                   "  expected  at most %lld in dimension %d%s\n  got       more",
                   ts_facts[tensor].name, (long long)most, dim, formula);
  }
  if (ts_at(views, place) == expected) return TESSERA_OK;
  return ts_fail(error, TESSERA_ARGUMENT,
                 "tessera: " TS_OP ": argument '%s' has the wrong %s\n"
                 "  expected  %s %lld in dimension %d%s\n  got       %lld",
                 ts_facts[tensor].name, is_stride ? "strides" : "shape",
                 is_stride ? "stride" : "extent", (long long)expected, dim, formula,
                 (long long)ts_at(views, place));
}
)text"},
    {"ts_range", R"text(
static int ts_range(const char *dim, const ts_place *source, int64_t value, int64_t multiple,
                    int64_t least, int64_t most, tessera_error *error) {
  if (!source || (value % multiple == 0 && value >= least && value <= most)) return TESSERA_OK;
  return ts_fail(error, TESSERA_ARGUMENT,
                 "tessera: " TS_OP ": argument '%s' has %s %lld that the kernel does not take\n"
                 "  expected  %s (dimension %d) a multiple of %lld from %lld to %lld\n"
                 "  got       %lld",
                 ts_facts[source->tensor].name, source->is_stride ? "a stride" : "an extent",
                 (long long)value, dim, source->dim, (long long)multiple, (long long)least,
                 (long long)most, (long long)value);
}
)text"},
    {"ts_writes", R"text(
/* True if some output has elements. */
static int ts_writes(const ts_view *views) {
  int i;
  for (i = 0; i < TS_TENSORS; ++i) {
    if (ts_facts[i].is_output && views[i].size > 0) return 1;
  }
  return 0;
}
)text"},
    {"ts_apart", R"text(
/* Tensors with gaps may lie between each other: only the others are compared. */
static int ts_apart(const ts_view *views, tessera_error *error) {
  int i, j;
  for (i = 0; i < TS_TENSORS; ++i) {
    for (j = 0; j < TS_TENSORS; ++j) {
      const ts_view *a = &views[i], *b = &views[j];
      const uintptr_t a_begin = (uintptr_t)a->tensor.data, b_begin = (uintptr_t)b->tensor.data;
      if (i == j || !ts_facts[i].is_output || a->size == 0 || b->size == 0) continue;
      if (ts_facts[i].may_alias && ts_facts[j].may_alias) continue;
      if (a->bytes != (a->size * ts_facts[i].bits + 7) / 8) continue;
      if (b->bytes != (b->size * ts_facts[j].bits + 7) / 8) continue;
      if (a_begin + (uintptr_t)a->bytes <= b_begin || b_begin + (uintptr_t)b->bytes <= a_begin) continue;
      return ts_fail(error, TESSERA_ARGUMENT,
                     "tessera: " TS_OP ": argument '%s' shares memory with '%s'\n"
                     "  expected  an output with memory of its own\n"
                     "  got       %lld bytes at 0x%llx, %lld bytes at 0x%llx",
                     ts_facts[i].name, ts_facts[j].name, (long long)a->bytes,
                     (unsigned long long)a_begin, (long long)b->bytes,
                     (unsigned long long)b_begin);
    }
  }
  return TESSERA_OK;
}
)text"},
    {"ts_needs_workspace", R"text(
static int ts_needs_workspace(const void *workspace, size_t given, size_t needed,
                              tessera_error *error) {
  if (given >= needed && (needed == 0 || (workspace && (uintptr_t)workspace % 256 == 0))) {
    return TESSERA_OK;
  }
  return ts_fail(error, TESSERA_ARGUMENT,
                 "tessera: " TS_OP ": argument 'workspace' is too small or not aligned\n"
                 "  expected  %llu bytes at a multiple of 256\n  got       %llu bytes at 0x%llx",
                 (unsigned long long)needed, (unsigned long long)given,
                 (unsigned long long)(uintptr_t)workspace);
}
)text"},
};

}  // namespace

std::span<const CPart> c_check_parts() {
  return kParts;
}

}  // namespace tessera::tools
