"""Pinned memory that is not pinned: first in PYTHONPATH, it is imported when a Python starts.

SGLang's LoRA code asks for pinned memory wherever it is about to copy to a GPU, and torch refuses that on
a machine that has none ("pin_memory=True requires a CUDA or other accelerator backend"). On a CPU nothing
is copied, so ordinary memory will do. All else of its torch_native LoRA backend runs there as it is.
"""

import functools
import sys

# Not in the helpers of multiprocessing, which need no torch.
if not any("resource_tracker" in argument for argument in sys.orig_argv):
    import torch

    def unpinned(make):
        @functools.wraps(make)
        def made(*args, pin_memory=False, **options):
            return make(*args, **options)

        return made

    for name in ("arange", "empty", "ones", "tensor", "zeros"):
        setattr(torch, name, unpinned(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda tensor, *_: tensor
