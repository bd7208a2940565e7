"""The workloads of bench.cpp in PyTorch on a GPU: peer.py mlp|pointwise|optimizer|gpt|chain|vision|lstm|attention [rounds] [contestant...].

Contestants, by what is appended to "pytorch": nothing is PyTorch as it is; "graph" is the whole step, update
included, captured once and replayed as one CUDA graph; "compiled" is torch.compile(mode="reduce-overhead"), which
makes CUDA graphs of forward and backward; "compiled_graph" is torch.compile(mode="max-autotune-no-cudagraphs"),
with the whole step captured. All take part, or those that are named, "plain" for the first. Optimizers are the fused ones, data is on the device. Prints lines "name value" as
bench.cpp does; a contestant that fails says why and is left out. Without a PyTorch that has CUDA it ends with 3.
"""
import pathlib
import re
import statistics
import sys
import time
import types

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "peer" / "pytorch"))
try:
    import torch
    from torch import nn

    from tasks import GPT, MLP, Block, expression, mlp_net
except ImportError as error:
    print(f"peer.py: {error}", file=sys.stderr)
    sys.exit(3)
if not torch.cuda.is_available():
    print("peer.py: this PyTorch sees no GPU", file=sys.stderr)
    sys.exit(3)

DEVICE = "cuda"
TASK = (HERE / "gpu_task.h").read_text()
GPT_LARGE = types.SimpleNamespace(
    **{name: int(value) for name, value in re.findall(r"\.(\w+) = (\d+)", re.search(r"kGptLarge = (.*)", TASK)[1])}
)


def constant(name):
    return int(re.search(rf"\b{name} = (\d+)[,;]", TASK)[1])


def parameter_sizes():
    sizes = [int(size) for size in re.search(r"kParameterSizes\[\] = \{(.*?)\}", TASK)[1].split(",")]
    return sizes * constant("kParametersOfASize")


def seconds_of_step(run, steps, rounds):
    """Of one of the `steps` that a call of `run` takes: the median of some rounds of a fifth of a second."""
    for _ in range(3):
        run()

    def timed(runs):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(runs):
            run()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    runs = max(1, int(0.2 / timed(1)))
    return statistics.median(timed(runs) for _ in range(rounds)) / (runs * steps)


def report(name, value):
    print(f"{name:<36} {value:12.3f}", flush=True)


def attempt(name, measure):
    """Reports what `measure` returns."""
    try:
        report(name, measure())
    except Exception as error:  # an error of one contestant does not stop the others
        print(f"peer.py: {name}: {type(error).__name__}: {error}", file=sys.stderr)
    torch._dynamo.reset()
    torch.cuda.empty_cache()


def captured(work):
    """A function that replays `work` as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


CONTESTANTS = {
    "": {},
    "_graph": {"whole": True},
    "_compiled": {"mode": "reduce-overhead"},
    "_compiled_graph": {"mode": "max-autotune-no-cudagraphs", "whole": True},
}


def training(net, x, y, batch, make_optimizer, numbers=None, mode=None, whole=False):
    """One epoch over shuffled batches, and how many steps it has. The loss is read when it ends."""
    steps = len(x) // batch
    optimizer = make_optimizer(net.parameters(), whole)
    loss_function = nn.MSELoss()
    order = torch.arange(len(x), device=DEVICE)[: steps * batch].view(steps, batch)
    cursor = torch.zeros(1, dtype=torch.long, device=DEVICE)
    total = torch.zeros((), device=DEVICE)

    def loss_of(rows):
        with torch.autocast(DEVICE, numbers or torch.bfloat16, enabled=numbers is not None):
            return loss_function(net(x.index_select(0, rows)).float(), y.index_select(0, rows))

    if mode:
        loss_of = torch.compile(loss_of, mode=mode)

    def step(rows):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(rows)
        loss.backward()
        optimizer.step()
        total.add_(loss.detach())

    def step_of_graph():
        step(order.index_select(0, cursor)[0])
        cursor.add_(1)

    replay = captured(step_of_graph) if whole else None

    def epoch():
        order.copy_(torch.randperm(len(x), device=DEVICE)[: steps * batch].view(steps, batch))
        total.zero_()
        cursor.zero_()
        for i in range(steps):
            if replay:
                replay()
                continue
            if mode:
                torch.compiler.cudagraph_mark_step_begin()
            step(order[i])
        total.item()

    return epoch, steps


def sgd(parameters, _):
    return torch.optim.SGD(parameters, 1e-3, fused=True)


def adam(parameters, whole):
    return torch.optim.Adam(parameters, 1e-3, fused=True, capturable=whole)


def mlp(rounds):
    def measure(options):
        x, y = torch.randn(MLP.rows, MLP.inputs, device=DEVICE), torch.randn(MLP.rows, MLP.outputs, device=DEVICE)
        epoch, steps = training(mlp_net().to(DEVICE), x, y, MLP.batch, sgd, **options)
        return seconds_of_step(epoch, steps, rounds) * 1e6

    for contestant, options in CONTESTANTS.items():
        attempt(f"mlp_pytorch{contestant}_us", lambda: measure(options))


def gpt(rounds):
    def measure(size, numbers, options):
        x, y = (torch.randn(size.rows, size.tokens, size.width, device=DEVICE) for _ in range(2))
        epoch, steps = training(Block(size).to(DEVICE), x, y, size.batch, adam, numbers, **options)
        return seconds_of_step(epoch, steps, rounds) * 1e3

    for name, size in (("gpt_large", GPT_LARGE), ("gpt_small", GPT)):
        for label, numbers in (("bf16", torch.bfloat16), ("tf32", None), ("float32", None)):
            torch.set_float32_matmul_precision("high" if label == "tf32" else "highest")
            for contestant, options in CONTESTANTS.items():
                attempt(f"{name}_{label}_pytorch{contestant}_ms", lambda: measure(size, numbers, options))


def pointwise(rounds):
    def rate(elements, bytes_of_element, run):
        return bytes_of_element * elements / seconds_of_step(run, 1, rounds) * 1e-9

    # No CUDA graphs of torch.compile: they would copy the operands.
    for label, name in (("16m", "kPointwise16M"), ("256m", "kPointwise256M")):
        elements = constant(name)
        for contestant in (c for c in ("", "_compiled") if c in CONTESTANTS):

            def wrap(function):
                return torch.compile(function, mode="max-autotune-no-cudagraphs") if contestant else function

            def forward():
                a, b, c = (torch.randn(elements, device=DEVICE) for _ in range(3))
                function = wrap(expression)

                def run():
                    with torch.inference_mode():
                        function(a, b, c)

                return rate(elements, constant("kForwardBytes"), run)

            def backward():
                leaves = [torch.randn(elements, device=DEVICE, requires_grad=True) for _ in range(3)]
                function = wrap(lambda *operands: expression(*operands).sum())

                def run():
                    for leaf in leaves:
                        leaf.grad = None
                    function(*leaves).backward()

                return rate(elements, constant("kBackwardBytes"), run)

            attempt(f"pointwise_forward_{label}_pytorch{contestant}_gb_per_s", forward)
            attempt(f"pointwise_backward_{label}_pytorch{contestant}_gb_per_s", backward)


def optimizer(rounds):
    def measure(whole):
        parameters = [torch.randn(size, device=DEVICE, requires_grad=True) for size in parameter_sizes()]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        step = adam(parameters, whole).step
        return seconds_of_step(captured(step) if whole else step, 1, rounds) * 1e3

    attempt("optimizer_pytorch_ms", lambda: measure(False))
    attempt("optimizer_pytorch_graph_ms", lambda: measure(True))


def chain(rounds):
    length = constant("kChain")
    leaves = [torch.ones(1, device=DEVICE, requires_grad=True) for _ in range(length)]
    shared = [torch.ones(1, device=DEVICE, requires_grad=True)] * length

    def measure(operands):
        def run():
            for leaf in operands:
                leaf.grad = None
            h = torch.ones(1, device=DEVICE, requires_grad=True)
            for v in operands:
                h = h + v
            h.backward()

        return seconds_of_step(run, 1, rounds) * 1e9 / length

    attempt("chain_shared_pytorch_ns", lambda: measure(shared))
    attempt("chain_distinct_pytorch_ns", lambda: measure(leaves))


def document():
    def block(before, channels):
        return [nn.Conv2d(before, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.Tanh()]

    sizes = [1, 64] + [128] * 30 + [512]
    parts = [part for before, after in zip(sizes, sizes[1:]) for part in block(before, after)]
    return nn.Sequential(*parts, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(512 * 16, 1024), nn.Tanh(),
                         nn.Linear(1024, 10))


def trained_network(name, make, x, loss_of, rounds, memory=torch.contiguous_format):
    """Plain and captured in all numbers; compiled in bfloat16 only, since it takes a minute."""

    def measure(numbers, mode=None, whole=False):
        net = make().to(DEVICE).to(memory_format=memory)
        optimizer = adam(net.parameters(), whole)

        def loss(batch):
            with torch.autocast(DEVICE, numbers or torch.bfloat16, enabled=numbers is not None):
                return loss_of(net(batch))

        if mode:
            loss = torch.compile(loss, mode=mode)

        def step():
            optimizer.zero_grad(set_to_none=True)
            loss(x).backward()
            optimizer.step()

        return seconds_of_step(captured(step) if whole else step, 1, rounds) * 1e3

    for label, numbers in (("float32", None), ("tf32", None), ("bf16", torch.bfloat16)):
        torch.set_float32_matmul_precision("highest" if label == "float32" else "high")
        torch.backends.cudnn.allow_tf32 = label != "float32"
        torch.backends.cudnn.benchmark = True
        for contestant, options in CONTESTANTS.items():
            if "mode" not in options or (label == "bf16" and "whole" in options):
                attempt(f"{name}_{label}_pytorch{contestant}_ms", lambda: measure(numbers, **options))


def vision(rounds):
    def loss_of(y):
        return nn.functional.cross_entropy(y, torch.zeros(len(y), dtype=torch.int64, device=DEVICE))

    digits = torch.randn(constant("kDigits"), 1, 8, 8, device=DEVICE)
    trained_network("document", document, digits, loss_of, rounds)
    try:
        from torchvision.models import resnet18
    except ImportError as error:
        print(f"peer.py: resnet18: {error}", file=sys.stderr)
        return
    pixels = constant("kPixels")
    images = torch.randn(constant("kImages"), 3, pixels, pixels, device=DEVICE).to(memory_format=torch.channels_last)
    trained_network("resnet18", resnet18, images, loss_of, rounds, torch.channels_last)


def lstm(rounds):
    width = constant("kWidth")
    x = torch.randn(constant("kSequences"), constant("kLength"), width, device=DEVICE)
    trained_network("lstm", lambda: nn.LSTM(width, width, 2, batch_first=True), x,
                    lambda result: result[0].float().square().mean(), rounds)


def attention(rounds):
    shape = [constant(name) for name in ("kBatchOfHeads", "kHeads", "kTokens", "kHeadWidth")]
    for label, dtype in (("float32", torch.float32), ("bf16", torch.bfloat16)):
        leaves = [torch.randn(shape, device=DEVICE, dtype=dtype, requires_grad=True) for _ in range(3)]
        g = torch.randn(shape, device=DEVICE, dtype=dtype)

        def forward():
            with torch.inference_mode():
                nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)

        def both():
            torch.autograd.grad(nn.functional.scaled_dot_product_attention(*leaves, is_causal=True), leaves, g)

        for direction, run in (("forward", forward), ("both", both)):
            attempt(f"attention_{label}_{direction}_pytorch_ms", lambda: seconds_of_step(run, 1, rounds) * 1e3)


WORKLOADS = {"mlp": mlp, "pointwise": pointwise, "optimizer": optimizer, "gpt": gpt, "chain": chain, "vision": vision,
             "lstm": lstm, "attention": attention}


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in WORKLOADS:
        sys.exit(__doc__)
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("highest")
    named = {"" if name == "plain" else f"_{name}" for name in sys.argv[3:]} or set(CONTESTANTS)
    for contestant in set(CONTESTANTS) - named:
        del CONTESTANTS[contestant]
    WORKLOADS[sys.argv[1]](int(sys.argv[2]) if len(sys.argv) > 2 else 5)


if __name__ == "__main__":
    main()
