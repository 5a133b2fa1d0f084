"""ResidualGrad: stacks of layers, checkpoints, and every misuse."""

import gc

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils.checkpoint import checkpoint  # noqa: E402

import tessera  # noqa: E402
import tessera.functional as F  # noqa: E402
import torch_reference as reference  # noqa: E402
from torch_cases import close  # noqa: E402

LAYERS, STREAMS, HIDDEN, MIXES = 3, 4, 64, 24


def half(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


class Stack:
    """Layers of mhc_pre, a matrix, mhc_post; at the end a head without a post."""

    def __init__(self, dtype=torch.float32):
        random = torch.Generator().manual_seed(1)
        normal = lambda *shape, scale=1.0: (torch.randn(*shape, generator=random) * scale).to(dtype).requires_grad_()
        width = STREAMS * HIDDEN
        self.layers = [
            {
                "fn": normal(MIXES, width, scale=0.05),
                "scale": normal(3, scale=0.5),
                "base": normal(MIXES, scale=0.3),
                "norm_weight": normal(width),
            }
            for _ in range(LAYERS)
        ]
        matrices = [torch.randn(HIDDEN, HIDDEN, generator=random) * HIDDEN**-0.5 for _ in range(LAYERS)]
        self.matrices = [m.bfloat16().to(torch.bfloat16 if dtype == torch.float32 else dtype) for m in matrices]
        for matrix in self.matrices:
            matrix.requires_grad_()
        self.head = {"fn": normal(STREAMS, width, scale=0.05), "scale": normal(1), "base": normal(STREAMS)}

    def leaves(self):
        return [*self.matrices, *(p for layer in self.layers for p in layer.values()), *self.head.values()]

    def run(self, x, run_layer):
        residual = F.expand_to_mhc(x) if x.dtype == torch.bfloat16 else reference.expand_to_mhc(x)
        for layer, matrix in zip(self.layers, self.matrices):
            residual = run_layer(residual, layer, matrix)
        head = F.mhc_head if x.dtype == torch.bfloat16 else reference.mhc_head
        return head(residual, **self.head)


def fused_layer(residual, layer, matrix):
    layer_input, context = F.mhc_pre(residual, **layer)
    return F.mhc_post(torch.tanh(layer_input @ matrix), residual, context)


def exact_layer(residual, layer, matrix):
    layer_input, post_mix, comb_mix = reference.mhc_pre(residual, **layer)
    return reference.post(torch.tanh(layer_input @ matrix), residual, post_mix, comb_mix)


def single_layer(make_handle):
    """A layer of single ops, with a handle or without."""

    def run(residual, layer, matrix):
        handle = make_handle()
        mixes = F.norm_fn(residual, layer["fn"], norm_weight=layer["norm_weight"], residual_grad=handle)
        pre_mix, post_mix, logits = F.pre_split_mixes(mixes, layer["scale"], layer["base"])
        layer_input = F.pre_apply_mix(residual, pre_mix, residual_grad=handle)
        out = torch.tanh(layer_input @ matrix)
        return F.post(out, residual, post_mix, F.sinkhorn(logits), residual_grad=handle)

    return run


def gradients(run_layer, stack=None, x=None):
    stack = stack or Stack()
    x = half(5, HIDDEN) if x is None else x
    x.requires_grad_()
    out = stack.run(x, run_layer)
    out.backward(half(*out.shape, seed=2).to(out.dtype))
    return [x.grad, *(leaf.grad for leaf in stack.leaves())]


LAYER_FORMS = {
    "fused": fused_layer,
    "bf16 handle": single_layer(F.ResidualGrad),
    "f32 handle": single_layer(lambda: F.ResidualGrad(torch.float32)),
    "no handle": single_layer(lambda: None),
}


@pytest.fixture(scope="module")
def exact():
    return gradients(exact_layer, Stack(torch.float64), half(5, HIDDEN).double())


@pytest.mark.parametrize("form", LAYER_FORMS)
def test_a_stack_has_the_gradients_of_the_definition(form, exact):
    for got, expected in zip(gradients(LAYER_FORMS[form]), exact):
        close(got, expected, 3e-2)  # bf16 activations and residuals, three layers


def test_a_handle_sums_what_autograd_would_sum():
    plain = gradients(LAYER_FORMS["no handle"])
    for form in ("fused", "bf16 handle", "f32 handle"):
        for got, expected in zip(gradients(LAYER_FORMS[form]), plain):
            close(got, expected, 3e-2)  # bf16 sums, rounded in another order, through three layers


def test_an_f32_handle_rounds_once():
    residual = half(2, STREAMS, HIDDEN)
    mixes = [torch.full((2, STREAMS), value) for value in (1.5 * 2.0**-9, 1.5 * 2.0**-9, 1.0)]  # the last one runs first

    def gradient(dtype):
        leaf = residual.clone().requires_grad_()
        handle = F.ResidualGrad(dtype)
        outs = [F.pre_apply_mix(leaf, mix, residual_grad=handle) for mix in mixes]
        torch.autograd.backward(outs, [torch.ones_like(out) for out in outs])
        return leaf.grad

    assert (gradient(torch.bfloat16) == 1).all()
    assert (gradient(torch.float32) == 1 + 2.0**-7).all()


@pytest.mark.parametrize("form", ["fused", "bf16 handle", "f32 handle"])
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointed_layers_have_the_same_bits(form, use_reentrant):
    def checkpointed(residual, layer, matrix):
        return checkpoint(LAYER_FORMS[form], residual, layer, matrix, use_reentrant=use_reentrant)

    if use_reentrant:  # takes tensors only as arguments
        def checkpointed(residual, layer, matrix):  # noqa: F811
            names = list(layer)
            run = lambda r, m, *values: LAYER_FORMS[form](r, dict(zip(names, values)), m)  # noqa: E731
            return checkpoint(run, residual, matrix, *layer.values(), use_reentrant=True)

    for got, expected in zip(gradients(checkpointed), gradients(LAYER_FORMS[form])):
        assert torch.equal(got, expected)


def test_a_checkpoint_inside_of_a_layer_registers_again():
    def run(residual, layer, matrix, wrap):
        handle = F.ResidualGrad()

        def before():
            mixes = F.norm_fn(residual, layer["fn"], residual_grad=handle)
            pre_mix, post_mix, logits = F.pre_split_mixes(mixes, layer["scale"], layer["base"])
            return F.pre_apply_mix(residual, pre_mix, residual_grad=handle), post_mix, F.sinkhorn(logits)

        layer_input, post_mix, comb_mix = wrap(before)
        return F.post(torch.tanh(layer_input @ matrix), residual, post_mix, comb_mix, residual_grad=handle)

    def layer_with(wrap):
        return lambda residual, layer, matrix: run(residual, layer, matrix, wrap)

    def drop_norm_weight(grads):
        return [g for g in grads if g is not None]

    plain = drop_norm_weight(gradients(layer_with(lambda f: f())))
    again = drop_norm_weight(gradients(layer_with(lambda f: checkpoint(f, use_reentrant=False))))
    assert len(plain) == len(again)
    for a, b in zip(plain, again):
        assert torch.equal(a, b)


def test_a_checkpoint_of_the_whole_stack():
    def run(x, stack):
        return stack.run(x, fused_layer)

    results = []
    for wrap in (lambda f, *a: f(*a), lambda f, *a: checkpoint(f, *a, use_reentrant=False)):
        stack, x = Stack(), half(5, HIDDEN).requires_grad_()
        out = wrap(run, x, stack)
        out.backward(half(*out.shape, seed=2))
        results.append([x.grad, *(leaf.grad for leaf in stack.leaves())])
    for a, b in zip(*results):
        assert torch.equal(a, b)


def test_another_reader_of_the_residual_gets_its_gradient_added():
    grads = []
    for handle in (F.ResidualGrad(), None):
        leaf = half(2, STREAMS, HIDDEN).requires_grad_()
        residual = leaf * 1.0
        u = F.pre_apply_mix(residual, torch.ones(2, STREAMS), residual_grad=handle)
        w = F.pre_apply_mix(residual, torch.ones(2, STREAMS) * 2, residual_grad=handle)
        (u.sum() + w.sum() + (residual * 3).sum()).backward()
        grads.append(leaf.grad)
    assert torch.equal(*grads) and (grads[0] == 6).all()


def test_the_last_layer_may_lack_a_post():
    residual = half(2, STREAMS, HIDDEN).requires_grad_()
    layer = Stack().layers[0]
    layer_input, _ = F.mhc_pre(residual, **layer)
    layer_input.sum().backward()
    exact = residual.detach().double().requires_grad_()
    inputs = {name: p.detach().double() for name, p in layer.items()}
    reference.mhc_pre(exact, **inputs)[0].sum().backward()
    close(residual.grad, exact.grad, 1e-2)


def test_a_residual_without_gradient_needs_no_handle():
    residual, layer = half(2, STREAMS, HIDDEN), Stack().layers[0]
    layer_input, context = F.mhc_pre(residual, **layer)
    assert context.residual_grad is None
    F.mhc_post(layer_input, residual, context).sum().backward()
    assert layer["fn"].grad is not None


# ---- misuse


def users(count=2):
    handle = F.ResidualGrad()
    residual = half(2, STREAMS, HIDDEN).requires_grad_() * 1.0
    outs = [F.pre_apply_mix(residual, torch.ones(2, STREAMS), residual_grad=handle) for _ in range(count)]
    return handle, residual, outs


def test_a_complete_handle_takes_no_user():
    handle, residual, outs = users()
    sum(outs).sum().backward()
    assert handle.is_complete
    with pytest.raises(tessera.ArgumentError, match="pre_apply_mix: argument 'residual_grad' is complete"):
        F.pre_apply_mix(residual, torch.ones(2, STREAMS), residual_grad=handle)


def test_a_second_backward_pass_is_refused():
    _, _, outs = users(1)
    outs[0].sum().backward(retain_graph=True)
    with pytest.raises(tessera.ArgumentError, match="a second backward pass"):
        outs[0].sum().backward()


def test_a_handle_takes_one_residual():
    handle, _, _ = users()
    other = half(2, STREAMS, HIDDEN, seed=4).requires_grad_()
    with pytest.raises(tessera.ArgumentError, match="belongs to another residual") as caught:
        F.pre_apply_mix(other, torch.ones(2, STREAMS), residual_grad=handle)
    assert caught.value.op == "pre_apply_mix" and caught.value.argument == "residual_grad"


def test_post_takes_the_residual_of_its_pre():
    residual = half(2, STREAMS, HIDDEN).requires_grad_()
    layer_input, context = F.mhc_pre(residual, **Stack().layers[0])
    with pytest.raises(tessera.ArgumentError, match="post: argument 'residual_grad' belongs to another residual"):
        F.mhc_post(layer_input, half(2, STREAMS, HIDDEN, seed=4).requires_grad_(), context)


def test_a_user_that_never_ran_is_an_error_of_the_backward_pass():
    _, _, outs = users(2)
    with pytest.raises(tessera.ArgumentError, match="is not complete.*\n.*\n.*no backward pass of pre_apply_mix"):
        outs[0].sum().backward()


def test_a_user_that_never_ran_is_an_error_for_a_leaf_too():
    leaf = half(2, STREAMS, HIDDEN).requires_grad_()
    handle = F.ResidualGrad()
    outs = [F.pre_apply_mix(leaf, torch.ones(2, STREAMS), residual_grad=handle) for _ in range(2)]
    with pytest.raises(tessera.ArgumentError, match="is not complete"):
        outs[0].sum().backward()
    assert leaf.grad is None and len(outs) == 2


def test_mixes_cut_from_the_graph_are_an_error():
    residual = half(2, STREAMS, HIDDEN).requires_grad_() * 1.0
    layer_input, context = F.mhc_pre(residual, **Stack().layers[0])
    cut = context._replace(post_mix=context.post_mix.detach(), comb_mix=context.comb_mix.detach())
    out = F.mhc_post(layer_input.detach(), residual, cut)  # the backward pass of mhc_pre never runs
    with pytest.raises(tessera.ArgumentError, match="no backward pass of mhc_pre"):
        out.sum().backward()


def test_a_dropped_output_is_no_user():
    handle, _, outs = users(2)
    outs.pop()
    gc.collect()
    outs[0].sum().backward()
    assert handle.is_complete


def test_a_handle_refuses_other_dtypes():
    with pytest.raises(tessera.ArgumentError, match="torch.bfloat16 or torch.float32"):
        F.ResidualGrad(torch.float16)


def test_a_failed_call_leaves_no_user():
    handle = F.ResidualGrad()
    residual = half(2, STREAMS, HIDDEN).requires_grad_() * 1.0
    with pytest.raises(tessera.Error):
        F.pre_apply_mix(residual, torch.ones(2, 5), residual_grad=handle)
    gc.collect()
    out = F.pre_apply_mix(residual, torch.ones(2, STREAMS), residual_grad=handle)
    out.sum().backward()
    assert handle.is_complete
