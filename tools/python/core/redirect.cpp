#include "tools/python/core/redirect.h"

#include <utility>

#include "dsl/base/error.h"

namespace tessera::python {
namespace {

nb::object& redirect() {
  static nb::object& function = *new nb::object;
  return function;
}

}  // namespace

nb::object set_redirect(nb::object function) {
  if (function.is_none()) function = nb::object();
  nb::object before = std::exchange(redirect(), std::move(function));
  return before.is_valid() ? before : nb::none();
}

nb::object redirected_call(const std::string& op, const nb::dict& arguments) {
  if (!redirect().is_valid()) {
    try {
      nb::module_::import_("tessera.torch");
    } catch (const nb::python_error& error) {
      if (!error.matches(PyExc_ImportError)) throw;
    }
  }
  if (!redirect().is_valid()) {
    throw Error({.kind = ErrorKind::unsupported,
                 .op = op,
                 .what = "the call goes through torch's dispatcher, where the op is not registered",
                 .expected = "tensors of type torch.Tensor, outside of modes and transforms",
                 .got = "a subclass, a fake tensor, or an active mode or transform",
                 .hint = "import tessera.torch"});
  }
  const nb::object function = redirect();  // lives although it may be replaced during the call
  return function(op, arguments);
}

}  // namespace tessera::python
