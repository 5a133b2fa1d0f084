"""ResidualGrad: stacks of layers, checkpoints, and backward passes that run in part, again, nested, or fail."""

import threading

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils.checkpoint import checkpoint  # noqa: E402

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
    "handle": single_layer(F.ResidualGrad),
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
    for form in ("fused", "handle"):
        for got, expected in zip(gradients(LAYER_FORMS[form]), plain):
            close(got, expected, 3e-2)  # bf16 sums, rounded in another order, through three layers


@pytest.mark.parametrize("form", ["fused", "handle"])
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


def test_a_checkpoint_inside_of_a_layer_has_the_same_bits():
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


# ---- backward passes that run in part, again, nested, or fail


class Block:
    """One sub-layer over a residual that is no leaf; `loss` weighs its output."""

    def __init__(self, form="fused", leaf=None):
        layer = Stack().layers[0]
        self.leaf = half(5, STREAMS, HIDDEN).requires_grad_() if leaf is None else leaf
        self.matrix = (half(HIDDEN, HIDDEN, seed=3) * HIDDEN**-0.5).requires_grad_()
        self.parameters = list(layer.values())
        residual = self.leaf * 1.0
        if form == "fused":
            self.layer_input, context = F.mhc_pre(residual, **layer)
            self.made = torch.tanh(self.layer_input @ self.matrix)
            self.out = F.mhc_post(self.made, residual, context)
        else:
            handle = F.ResidualGrad()
            mixes = F.norm_fn(residual, layer["fn"], norm_weight=layer["norm_weight"], residual_grad=handle)
            pre_mix, post_mix, logits = F.pre_split_mixes(mixes, layer["scale"], layer["base"])
            self.layer_input = F.pre_apply_mix(residual, pre_mix, residual_grad=handle)
            self.made = torch.tanh(self.layer_input @ self.matrix)
            self.out = F.post(self.made, residual, post_mix, F.sinkhorn(logits), residual_grad=handle)
        self.loss = (self.out * half(*self.out.shape, seed=2)).float().sum()

    def leaves(self):
        return [self.leaf, self.matrix, *self.parameters]


def whole(form):
    """The gradients of one backward pass."""
    block = Block(form)
    block.loss.backward()
    return [leaf.grad for leaf in block.leaves()]


def of_the_sublayer_first(block):
    torch.autograd.grad(block.loss, block.matrix, retain_graph=True)  # as GradNorm does
    block.loss.backward()


def of_the_mixes_first(block):
    torch.autograd.grad(block.loss, block.parameters, retain_graph=True)
    block.loss.backward()


def of_the_layer_input_first(block):
    torch.autograd.grad(block.loss, block.layer_input, retain_graph=True)
    block.loss.backward()


def after_one_that_failed(block):
    def fail(gradient):
        handle.remove()
        raise RuntimeError("failed on purpose")

    handle = block.layer_input.register_hook(fail)
    with pytest.raises(RuntimeError, match="on purpose"):
        block.loss.backward(retain_graph=True)
    for leaf in block.leaves():
        leaf.grad = None
    block.loss.backward()


def beside_a_nested_one(block):
    def nest(gradient):
        torch.autograd.grad(block.loss, block.leaves(), retain_graph=True)

    handle = block.made.register_hook(lambda gradient: handle.remove() or nest(gradient))
    block.loss.backward(retain_graph=True)


def with_create_graph(block):
    for leaf, grad in zip(block.leaves(), torch.autograd.grad(block.loss, block.leaves(), create_graph=True)):
        leaf.grad = grad.detach()


def of_each_tensor_alone(block):
    for leaf in block.leaves():
        leaf.grad = torch.autograd.grad(block.loss, leaf, retain_graph=True)[0]


def through_hooks(block):
    seen = []

    def keep(gradients, *_):
        seen.extend((g, g.clone()) for g in gradients if g is not None)

    nodes = [block.out.grad_fn]
    for node in nodes:
        node.register_hook(keep)
        node.register_prehook(keep)
        nodes += [n for n, _ in node.next_functions if n is not None and n not in nodes]
    block.loss.backward()
    assert len(seen) > 10 and all(torch.equal(kept, copy) for kept, copy in seen), "a kept gradient changed"


PASSES = [
    of_the_sublayer_first,
    of_the_mixes_first,
    of_the_layer_input_first,
    after_one_that_failed,
    beside_a_nested_one,
    with_create_graph,
    of_each_tensor_alone,
    through_hooks,
]


@pytest.mark.parametrize("form", ["fused", "handle"])
@pytest.mark.parametrize("run", PASSES, ids=lambda run: run.__name__)
def test_gradients_do_not_depend_on_other_backward_passes(run, form):
    block = Block(form)
    run(block)
    for leaf, expected in zip(block.leaves(), whole(form)):
        assert torch.equal(leaf.grad, expected)


@pytest.mark.parametrize("form", ["fused", "handle"])
def test_a_part_of_the_backward_pass_then_the_whole(form):
    block = Block(form)
    block.loss.backward(inputs=[block.matrix], retain_graph=True)
    assert block.leaf.grad is None
    block.loss.backward()
    once = whole(form)
    for leaf, expected in zip(block.leaves(), [once[0], 2 * once[1], *once[2:]]):
        assert torch.equal(leaf.grad, expected)


@pytest.mark.parametrize("form", ["fused", "handle"])
def test_three_backward_passes_count_three_times(form):
    block = Block(form)
    for _ in range(3):
        block.loss.backward(retain_graph=True)
    for leaf, expected in zip(block.leaves(), whole(form)):
        assert torch.equal(leaf.grad, expected + expected + expected)


def test_a_loss_on_the_layer_input_leaves_the_output_of_post_out():
    block = Block()
    block.layer_input.float().sum().backward()
    alone = Block()
    del alone.out, alone.loss
    alone.layer_input.float().sum().backward()
    assert torch.equal(block.leaf.grad, alone.leaf.grad) and block.leaf.grad.any()


def test_two_losses_run_in_two_passes():
    block = Block()
    block.loss.backward(retain_graph=True)
    block.layer_input.float().sum().backward()
    other = Block()
    other.layer_input.float().sum().backward()
    for leaf, first, second in zip(block.leaves(), whole("fused"), other.leaves()):
        assert torch.equal(leaf.grad, first if second.grad is None else first + second.grad)


def test_two_graphs_share_a_residual():
    once = whole("fused")[0]
    leaf = half(5, STREAMS, HIDDEN).requires_grad_()
    first, second = Block("fused", leaf), Block("handle", leaf)
    first.loss.backward()
    assert torch.equal(leaf.grad, once)
    second.loss.backward()
    assert torch.equal(leaf.grad, once + whole("handle")[0])


def test_threads_run_one_graph_backward_at_once():
    block = Block()
    results = [None] * 4

    def run(index):
        results[index] = torch.autograd.grad(block.loss, block.leaves(), retain_graph=True)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for grads in results:
        assert all(torch.equal(got, expected) for got, expected in zip(grads, whole("fused")))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpointed_block_runs_backward_in_part(use_reentrant):
    layer = Stack().layers[0]

    def gradient(wrap, in_part):
        leaf, matrix = half(5, STREAMS, HIDDEN).requires_grad_(), half(HIDDEN, HIDDEN, seed=3).requires_grad_()
        loss = wrap(lambda residual, m: fused_layer(residual, layer, m), leaf * 1.0, matrix).float().sum()
        if in_part:
            torch.autograd.grad(loss, matrix, retain_graph=True)
        loss.backward()
        return leaf.grad

    plain = gradient(lambda run, *inputs: run(*inputs), False)
    wrapped = lambda run, *inputs: checkpoint(run, *inputs, use_reentrant=use_reentrant)  # noqa: E731
    assert torch.equal(gradient(wrapped, not use_reentrant), plain)  # reentrant ones refuse torch.autograd.grad


# ---- which residual


def test_a_residual_that_changed_is_another_one():
    handle = F.ResidualGrad()
    leaf = half(2, STREAMS, HIDDEN).requires_grad_()
    residual = leaf * 1.0
    mix = torch.ones(2, STREAMS, requires_grad=True)
    first = F.pre_apply_mix(residual, mix.detach(), residual_grad=handle)
    del first
    residual.mul_(2)
    F.pre_apply_mix(residual, mix, residual_grad=handle).sum().backward()
    assert (leaf.grad == 2).all()
    close(mix.grad, (2 * leaf.detach()).double().sum(-1), 1e-2)


def test_one_handle_serves_several_residuals():
    handle = F.ResidualGrad()
    leaves = [half(2, STREAMS, HIDDEN, seed=seed).requires_grad_() for seed in (1, 2)]
    outs = [F.pre_apply_mix(leaf, torch.full((2, STREAMS), 2.0), residual_grad=handle) for leaf in leaves * 2]
    sum(out.sum() for out in outs).backward()
    assert all((leaf.grad == 4).all() for leaf in leaves)


def test_mixes_cut_from_the_graph_get_no_gradient():
    leaf = half(2, STREAMS, HIDDEN).requires_grad_()
    layer = Stack().layers[0]
    layer_input, context = F.mhc_pre(leaf, **layer)
    mixes = (context.post_mix.detach(), context.comb_mix.detach())
    F.mhc_post(layer_input.detach(), leaf, F.MhcContext(*mixes, context.residual_grad)).sum().backward()
    plain = leaf.detach().clone().requires_grad_()
    F.post(layer_input.detach(), plain, *mixes).sum().backward()
    assert torch.equal(leaf.grad, plain.grad) and layer["fn"].grad is None


def test_a_detached_residual_of_post_gets_no_gradient():
    leaf = half(2, STREAMS, HIDDEN).requires_grad_()
    layer = Stack().layers[0]
    layer_input, context = F.mhc_pre(leaf, **layer)
    x = half(2, HIDDEN, seed=4).requires_grad_()
    F.mhc_post(x, leaf.detach(), F.MhcContext(*(m.detach() for m in context[:2]), context.residual_grad)).sum().backward()
    assert leaf.grad is None and x.grad is not None


def test_a_failed_call_leaves_the_handle_as_it_was():
    handle = F.ResidualGrad()
    leaf = half(2, STREAMS, HIDDEN).requires_grad_()
    with pytest.raises(ValueError):
        F.pre_apply_mix(leaf, torch.ones(2, 5), residual_grad=handle)
    F.pre_apply_mix(leaf, torch.ones(2, STREAMS), residual_grad=handle).sum().backward()
    assert (leaf.grad == 1).all()
