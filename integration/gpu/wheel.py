#!/usr/bin/env python3
"""What somebody who trains in PyTorch meets: the Python package on this GPU, and torch's own loader beside it.

    wheel.py smoke      FOLDER                 rows on the GPU against the CPU's; kept tensors; a reader that is late
    wheel.py resnet     FOLDER --feed FEED     ResNet-50, bf16, channels last: batches of FEED beside one that stays
    wheel.py cpu        FOLDER                 files to rows in host memory by threads, first epoch and later ones
    wheel.py rates      FOLDER                 files to batches on the GPU, by where they are made
    wheel.py dataloader FOLDER                 torch's DataLoader with torchvision's transforms on all cores

A line of JSON for each figure or check, flushed at once. Exit code 1 when a check fails.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CORES = len(os.sched_getaffinity(0))
# What two right decoders may differ by, and what a row of another image never falls below.
MOST_LEVELS, LEAST_DECIBELS, ANOTHER_IMAGE = 3.0, 30.0, 12.0


def say(section, name, **fields):
    print(json.dumps({"section": section, "name": name, **fields}), flush=True)


def figure(section, name, rates, **more):
    say(section, name, unit="images/s", median=statistics.median(rates), low=min(rates), high=max(rates), runs=len(rates), more=more)


def loader(dataset, device, batch, **more):
    import infeed

    return infeed.Loader(dataset, batch_size=batch, shuffle=True, seed=3, drop_last=True, transform="imagenet-train",
                         device=device, dtype="float16", **more)


def forever(batches):
    """Epoch after epoch."""
    while True:
        yield from batches


def end(code=0):
    # Workers and libraries with threads of their own may take long to end, or crash on the way.
    sys.stdout.flush()
    os._exit(code)


# ---- smoke --------------------------------------------------------------------------------------------------------


def smoke(args):
    import numpy
    import torch

    failed = []

    def check(name, good, **what):
        say("smoke", name, result="pass" if good else "FAIL", note=what)
        if not good:
            failed.append(name)

    size = 8 if args.small else 64
    begin = time.perf_counter()
    ours = loader(args.folder, args.device, size, num_workers=args.workers)
    built = time.perf_counter() - begin
    batches = iter(ours)
    first = next(batches)
    image = first["image"].torch()
    check("the first batch is on the GPU", tuple(image.shape) == (size, 3, 224, 224) and image.dtype == torch.float16 and image.is_cuda,
          loader_made_s=round(built, 3), first_batch_s=round(time.perf_counter() - begin, 3), device=str(image.device))

    # The same order, crops and flips, another decoder.
    host = iter(loader(args.folder, "cpu", size, num_workers=args.workers))
    std = numpy.array(STD, numpy.float32).reshape(1, 3, 1, 1) * 255
    means, squares, kept, labels_agree = [], [], [], True
    batch = first
    while batch is not None and len(kept) < 6:
        mine, theirs = batch["image"].torch(), next(host)
        values = mine.cpu().numpy()
        apart = numpy.abs(values.astype(numpy.float32) - theirs["image"].numpy().astype(numpy.float32)) * std
        means += apart.mean(axis=(1, 2, 3)).tolist()
        squares += (apart * apart).mean(axis=(1, 2, 3)).tolist()
        labels_agree = labels_agree and bool((batch["label"].torch().cpu().numpy() == theirs["label"].numpy()).all())
        kept.append((mine, values))
        batch = next(batches, None)
    mean, worst, square = statistics.mean(means), max(means), statistics.mean(squares)
    decibels = 99.0 if square == 0 else 10 * numpy.log10(255 * 255 / square)
    check("rows are the CPU's but for the decoder", mean <= MOST_LEVELS and decibels >= LEAST_DECIBELS and worst <= ANOTHER_IMAGE,
          mean_levels=round(mean, 3), worst_row_levels=round(worst, 3), decibels=round(float(decibels), 2), rows=len(means))
    check("labels are the CPU's", labels_agree)
    check("tensors that are kept do not change", all((tensor.cpu().numpy() == values).all() for tensor, values in kept), batches=len(kept))
    del kept, batch, mine, first, image, theirs

    # A reader that is late: its stream sleeps some 10 ms with the tensor in hand, which is dropped meanwhile.
    stream, sums = torch.cuda.Stream(), []
    for batch in forever(ours):
        with torch.cuda.stream(stream):
            tensor = batch["image"].torch()  # names this stream
            before = tensor.double().sum()
            torch.cuda._sleep(20_000_000)
            sums.append((before, tensor.double().sum()))
        del tensor, batch
        if len(sums) == 40:
            break
    torch.cuda.synchronize()
    wrong = sum(float(a) != float(b) for a, b in sums)
    check("memory waits for a late reader", wrong == 0, batches=len(sums), wrong=wrong)

    free, total = torch.cuda.mem_get_info()
    report = ours.report()
    stages = {stage["name"]: {key: stage[key] for key in ("busy", "cpu", "device", "calls")} for stage in report["stages"]}
    say("smoke", "device memory in use, MiB", note=(total - free) >> 20)
    say("smoke", "who decoded", note=report.get("decoded_by"))
    say("smoke", "stages", note=stages)
    return failed


# ---- rates --------------------------------------------------------------------------------------------------------

PLACES = {
    "wheel, device=cuda": ("cuda:0", {}),
    "wheel, cpu, page-locked, copied up": ("cpu", {"pin_memory": True}),
}


def drain(batches, take, seconds):
    """Images a second of one stretch."""
    begin, images = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        images += take(next(batches))
    return images / (time.perf_counter() - begin)


def rates(args):
    import torch

    for name, (device, more) in PLACES.items():
        ours = loader(args.folder, device, args.batch, num_workers=args.workers, **more)
        batches, held = forever(ours), []

        def take(batch):
            tensor = batch["image"].torch()
            # The copy runs while the next batch is waited for, and the batch is kept as long.
            held[:] = [(batch, tensor.to("cuda", non_blocking=True))]
            return len(tensor)

        cpu = time.process_time()
        drain(batches, take, args.seconds / 2)
        measured = [drain(batches, take, args.seconds / 2) for _ in range(3)]
        torch.cuda.synchronize()
        figure("wheel", name, measured, cpu_s=round(time.process_time() - cpu, 2), workers=ours.config["workers"], prefetch=ours.config["prefetch"],
               decoded_by=ours.report().get("decoded_by"))
        held.clear()
        del batches, ours


def cpu(args):
    """No GPU and no torch: what the engine does by threads. Each epoch is one figure; the first has no index to lean on."""
    import infeed

    with tempfile.TemporaryDirectory() as folder:
        threads = [n for n in (1, 4, 16, 64) if n < CORES] + [CORES]
        for n in threads:
            # As many seconds each.
            records = os.path.join(folder, f"{n}.txt")
            wanted = 16 if args.small else 1024 * n
            with open(records, "w") as file:
                file.write("\n".join(map(str, range(min(wanted, args.records or wanted)))))
            ours = loader(infeed.open(args.folder, records=records), "cpu", 8 if args.small else 128, num_workers=n)
            measured, used = [], []
            for _ in range(4):
                begin, before, images = time.perf_counter(), time.process_time(), 0
                for batch in ours:
                    images += batch["image"].shape[0]
                measured.append(images / (time.perf_counter() - begin))
                used.append((time.process_time() - before) / images * 1e3)
            figure("threads", f"infeed, first epoch, threads={n}", measured[:1], threads=n, cpu_ms=round(used[0], 3))
            figure("threads", f"infeed, later epochs, threads={n}", measured[1:], threads=n, cpu_ms=round(statistics.median(used[1:]), 3))


# ---- torch's own loader -------------------------------------------------------------------------------------------


def torch_loader(folder, batch, workers):
    """ImageFolder, decode_image and torchvision's v2 transforms: the fastest that torchvision has on the CPU. Rows of bytes;
    they are normalised on the GPU, which costs the CPU nothing."""
    import torch
    from torchvision import datasets
    from torchvision.io import ImageReadMode, decode_image
    from torchvision.transforms import v2

    steps = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()])
    data = datasets.ImageFolder(folder, transform=steps, loader=lambda path: decode_image(path, mode=ImageReadMode.RGB))
    return torch.utils.data.DataLoader(data, batch_size=batch, shuffle=True, num_workers=workers, pin_memory=True,
                                       drop_last=True, persistent_workers=True, prefetch_factor=4)


def dataloader(args):
    batches = forever(torch_loader(args.folder, args.batch, CORES))
    take = lambda batch: len(batch[0])
    next(batches)
    drain(batches, take, args.seconds)
    figure("dataloader", f"torch DataLoader, {CORES} workers", [drain(batches, take, args.seconds / 2) for _ in range(3)], workers=CORES)


# ---- ResNet-50 ----------------------------------------------------------------------------------------------------

FEEDS = ("infeed-cuda", "infeed-gpu", "infeed-cpu", "dataloader")


def feed(args):
    """Images of f16, channels last, and labels, on the GPU, without end; and what tells who decoded them."""
    import torch

    decoded_by = lambda: None
    if args.feed == "dataloader":
        made = torch_loader(args.folder, args.batch, CORES)
        mean, std = (torch.tensor(values, device="cuda").view(1, 3, 1, 1) * 255 for values in (MEAN, STD))

        def on_gpu(batch):
            x, y = batch
            x = x.to("cuda", non_blocking=True).to(memory_format=torch.channels_last)
            return x.float().sub_(mean).div_(std).half(), y.to("cuda", non_blocking=True)
    else:
        more = {"infeed-cuda": {"device": "cuda:0"}, "infeed-gpu": {"device": "cuda:0", "decode": "auto" if args.small else "gpu"},
                "infeed-cpu": {"device": "cpu", "pin_memory": True}}[args.feed]
        made = loader(args.folder, batch=args.batch, num_workers=args.workers, channels_last=True, **more)
        decoded_by = lambda: made.report().get("decoded_by")

        def on_gpu(batch):
            # NHWC in memory, seen as NCHW: what channels_last means.
            x, y = batch["image"].torch().permute(0, 3, 1, 2), batch["label"].torch()
            return x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)

    return map(on_gpu, forever(made)), decoded_by


@contextlib.contextmanager
def clocks(into):
    """The GPU's clock in the middle of what is done inside, in MHz, where its tool is there: engines may change it."""
    command = ["nvidia-smi", "--id=0", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits", "--loop-ms=100"]
    try:
        tool = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        tool.terminate()
        seen = [int(line) for line in tool.communicate()[0].split() if line.isdigit()]
        into.append(statistics.median(seen) if seen else None)


def graph(step, images, labels):
    """`step` as one launch: the batch is copied to where the graph reads it."""
    import torch

    images, labels = images.clone(), labels.clone()
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        # cuDNN chooses, and the optimiser makes its state.
        for _ in range(4):
            step(images, labels)
    torch.cuda.current_stream().wait_stream(beside)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        step(images, labels)

    def replay(of_batch, its_labels):
        images.copy_(of_batch)
        labels.copy_(its_labels)
        captured.replay()

    return replay


def resnet(args):
    import torch
    import torchvision

    torch.backends.cudnn.benchmark = True
    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    def step(images, labels):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()

    def timed(steps, batches):
        """Seconds a step, and what of it was waited for data and taken by launches."""
        torch.cuda.synchronize()
        begin, waited, launched = time.perf_counter(), 0.0, 0.0
        for _ in range(steps):
            asked = time.perf_counter()
            images, labels = next(batches)
            given = time.perf_counter()
            step(images, labels)
            waited += given - asked
            launched += time.perf_counter() - given
        torch.cuda.synchronize()
        return tuple(seconds / steps for seconds in (time.perf_counter() - begin, waited, launched))

    stays = torch.randn(args.batch, 224, 224, 3, device="cuda", dtype=torch.float16).permute(0, 3, 1, 2)
    labels = torch.randint(0, 1000, (args.batch,), device="cuda")
    warm, steps = (2, 4) if args.small else (8, args.steps)
    if args.graph:
        step = graph(step, stays, labels)
    stays = forever([(stays, labels)])
    timed(warm, stays)
    mhz = []
    with clocks(mhz):
        before, _, launches = timed(steps // 2, stays)
    fed, decoded_by = feed(args)
    # Beside CPU threads that keep its pace, engines are given up after some batches.
    timed(warm if args.small else 48, fed)
    cpu = time.process_time()
    with clocks(mhz):
        each, waited, launched = timed(steps, fed)
    cores = (time.process_time() - cpu) / (each * steps)
    # Around it: clocks change as a GPU gets warm, and worker processes that read ahead disturb what is timed after them.
    after = timed(steps // 2, stays)[0]
    stay = min(before, after)
    say("resnet", f"{args.feed}, a CUDA graph" if args.graph else args.feed, unit="images/s", median=args.batch / each, low=args.batch / each, high=args.batch / each, runs=1,
        more={"step_ms": round(each * 1e3, 3), "resident_ms": round(stay * 1e3, 3), "resident_ms_before_and_after": [round(before * 1e3, 3), round(after * 1e3, 3)],
              "of_resident": round(stay / each, 4), "wait_ms": round(waited * 1e3, 3), "launch_ms": round(launched * 1e3, 3), "launch_ms_of_resident": round(launches * 1e3, 3), "mhz_of_resident_and_fed": mhz, "cores_of_this_process": round(cores, 2),
              "batch": args.batch, "decoded_by": decoded_by(), "connections": os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS")})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("smoke", "resnet", "cpu", "rates", "dataloader"))
    parser.add_argument("folder")
    parser.add_argument("--feed", choices=FEEDS)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--graph", action="store_true", help="the trainer's step is one launch of a CUDA graph")
    parser.add_argument("--workers", type=int, help="threads of infeed; as many as it chooses by default")
    parser.add_argument("--records", type=int, help="how many the folder has")
    parser.add_argument("--small", action="store_true", help="sizes for a mock")
    args = parser.parse_args()
    if args.small:
        args.batch, args.seconds = 8, 0.2
    failed = {"smoke": smoke, "resnet": resnet, "cpu": cpu, "rates": rates, "dataloader": dataloader}[args.what](args)
    end(1 if failed else 0)


if __name__ == "__main__":
    main()
